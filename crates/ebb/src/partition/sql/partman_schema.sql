-- The schema of pg_partman, where it is installed and its settings can be read; no row otherwise. Read only.
SELECT n.nspname::text FROM pg_catalog.pg_extension e JOIN pg_catalog.pg_namespace n ON n.oid = e.extnamespace
JOIN pg_catalog.pg_class c ON c.relnamespace = n.oid AND c.relname = 'part_config'
WHERE e.extname = 'pg_partman' AND has_schema_privilege(n.oid, 'USAGE') AND has_table_privilege(c.oid, 'SELECT')
