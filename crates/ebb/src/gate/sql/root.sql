-- The table that a partition ($1) is part of, or the table itself. Index: the catalog's; read only.
SELECT n.nspname::text, c.relname::text
FROM pg_catalog.pg_class c
JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE c.oid = COALESCE(pg_catalog.pg_partition_root($1::int8::oid::regclass)::oid, $1::int8::oid)
