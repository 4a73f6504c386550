-- The extended statistics on a table ($1). Read only.
SELECT n.nspname::text AS schema_name, s.stxname::text AS name,
       -- What stands between its name and its table: kinds and columns.
       rtrim(substr(pg_catalog.pg_get_statisticsobjdef(s.oid), length('CREATE STATISTICS ' || pg_catalog.format('%I.%I', n.nspname, s.stxname)) + 1,
           length(pg_catalog.pg_get_statisticsobjdef(s.oid)) - length('CREATE STATISTICS ' || pg_catalog.format('%I.%I', n.nspname, s.stxname))
           - length(' FROM ' || s.stxrelid::regclass::text))) AS body,
       COALESCE(s.stxstattarget, -1)::int4 AS target, pg_catalog.obj_description(s.oid, 'pg_statistic_ext') AS comment,
       pg_catalog.pg_get_userbyid(s.stxowner)::text AS owner
FROM pg_catalog.pg_statistic_ext s
JOIN pg_catalog.pg_namespace n ON n.oid = s.stxnamespace
WHERE s.stxrelid = $1::int8::oid
ORDER BY s.stxname
