-- A partition of a table ($1) that is itself partitioned, in words. Read only.
SELECT pg_catalog.format('%I.%I', n.nspname, c.relname)
FROM pg_catalog.pg_inherits i
JOIN pg_catalog.pg_class c ON c.oid = i.inhrelid AND c.relkind <> 'r'
JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE i.inhparent = $1::int8::oid
ORDER BY 1
LIMIT 1
