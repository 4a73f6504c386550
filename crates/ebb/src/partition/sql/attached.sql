-- The partitions or children of a table ($1): oid, schema, name, oldest first. Read only.
SELECT c.oid::int8, n.nspname::text, c.relname::text
FROM pg_catalog.pg_inherits i
JOIN pg_catalog.pg_class c ON c.oid = i.inhrelid
JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE i.inhparent = $1::int8::oid
ORDER BY c.oid
