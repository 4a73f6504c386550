-- The schema of pg_stat_statements, where it is installed, loaded and can be read; no row otherwise. Read only.
SELECT n.nspname::text FROM pg_catalog.pg_extension e JOIN pg_catalog.pg_namespace n ON n.oid = e.extnamespace
JOIN pg_catalog.pg_class c ON c.relnamespace = n.oid AND c.relname = 'pg_stat_statements'
WHERE e.extname = 'pg_stat_statements' AND has_schema_privilege(n.oid, 'USAGE') AND has_table_privilege(c.oid, 'SELECT')
  AND EXISTS (SELECT FROM pg_catalog.pg_settings s WHERE s.name = 'pg_stat_statements.max')
