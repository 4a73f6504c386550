-- The views over a table ($1), as statements that make them again over whatever has its name then; whether one reads ONLY
-- it, and whether one depends on its key (GROUP BY the key alone). Read only.
SELECT DISTINCT pg_catalog.format('%I.%I', n.nspname, v.relname) AS name, v.relkind::text AS relkind,
       'CREATE OR REPLACE VIEW ' || pg_catalog.format('%I.%I', n.nspname, v.relname)
       || COALESCE(' WITH (' || (SELECT string_agg(pg_catalog.format('%I = %L', split_part(o, '=', 1), substr(o, strpos(o, '=') + 1)), ', ') FROM unnest(v.reloptions) o) || ')', '')
       || ' AS ' || rtrim(pg_catalog.pg_get_viewdef(v.oid), ';') AS definition,
       strpos(pg_catalog.pg_get_viewdef(v.oid), 'ONLY ' || pg_catalog.format('%I.%I', tn.nspname, t.relname)) > 0
       OR strpos(pg_catalog.pg_get_viewdef(v.oid), 'ONLY ' || quote_ident(t.relname)) > 0 AS reads_only,
       EXISTS (SELECT FROM pg_catalog.pg_depend k JOIN pg_catalog.pg_constraint con ON con.oid = k.refobjid AND con.conrelid = t.oid
               WHERE k.classid = 'pg_rewrite'::regclass AND k.objid = r.oid AND k.refclassid = 'pg_constraint'::regclass) AS needs_key,
       pg_catalog.pg_get_userbyid(v.relowner)::text AS owner, pg_catalog.pg_has_role(v.relowner, 'USAGE') AS owned
FROM pg_catalog.pg_depend d
JOIN pg_catalog.pg_rewrite r ON r.oid = d.objid AND d.classid = 'pg_rewrite'::regclass AND r.rulename = '_RETURN'
JOIN pg_catalog.pg_class v ON v.oid = r.ev_class AND v.relkind IN ('v', 'm')
JOIN pg_catalog.pg_namespace n ON n.oid = v.relnamespace
JOIN pg_catalog.pg_class t ON t.oid = d.refobjid
JOIN pg_catalog.pg_namespace tn ON tn.oid = t.relnamespace
WHERE d.refclassid = 'pg_class'::regclass AND d.refobjid = $1::int8::oid
ORDER BY 1
