-- The views over a table ($1), as statements that make them again over whatever has its name then. Read only.
SELECT DISTINCT pg_catalog.format('%I.%I', n.nspname, v.relname) AS name, v.relkind::text AS relkind,
       'CREATE OR REPLACE VIEW ' || pg_catalog.format('%I.%I', n.nspname, v.relname)
       || COALESCE(' WITH (' || (SELECT string_agg(pg_catalog.format('%I = %L', split_part(o, '=', 1), substr(o, strpos(o, '=') + 1)), ', ') FROM unnest(v.reloptions) o) || ')', '')
       || ' AS ' || rtrim(pg_catalog.pg_get_viewdef(v.oid), ';') AS definition
FROM pg_catalog.pg_depend d
JOIN pg_catalog.pg_rewrite r ON r.oid = d.objid AND d.classid = 'pg_rewrite'::regclass
JOIN pg_catalog.pg_class v ON v.oid = r.ev_class AND v.relkind IN ('v', 'm')
JOIN pg_catalog.pg_namespace n ON n.oid = v.relnamespace
WHERE d.refclassid = 'pg_class'::regclass AND d.refobjid = $1::int8::oid
ORDER BY 1
