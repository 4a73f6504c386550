-- The foreign keys of ordinary tables that refer to a partitioned table ($1) and can let go of it for the swap: those of
-- tables that this role may alter. What refers to it otherwise is in obstacles.sql. Read only.
SELECT n.nspname::text AS schema_name, c.relname::text AS table_name, con.conname::text AS name, pg_catalog.pg_get_constraintdef(con.oid) AS definition,
       con.convalidated AS is_valid, pg_catalog.obj_description(con.oid, 'pg_constraint') AS comment
FROM pg_catalog.pg_constraint con
JOIN pg_catalog.pg_class c ON c.oid = con.conrelid
JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE con.contype = 'f' AND con.conparentid = 0 AND con.confrelid = $1::int8::oid
  AND c.relkind = 'r' AND NOT c.relispartition AND pg_catalog.pg_has_role(c.relowner, 'USAGE')
ORDER BY 1, 2, 3
