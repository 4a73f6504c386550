-- Which of these names ($2) something in a schema ($1) has: a table, a type, an index; or extended statistics, which a table may have in
-- any schema. Read only.
SELECT DISTINCT x.name FROM unnest($2::text[]) x (name)
WHERE EXISTS (SELECT FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = $1 AND c.relname = x.name)
   OR EXISTS (SELECT FROM pg_catalog.pg_type t JOIN pg_catalog.pg_namespace n ON n.oid = t.typnamespace WHERE n.nspname = $1 AND t.typname = x.name)
   OR EXISTS (SELECT FROM pg_catalog.pg_statistic_ext s WHERE s.stxname = x.name)
ORDER BY 1
