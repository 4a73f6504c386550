-- The whole table that a partition ($1) belongs to; nothing for any other table. Catalog only; read only.
SELECT r.oid::int8, n.nspname::text, r.relname::text
FROM pg_catalog.pg_class c
JOIN pg_catalog.pg_class r ON r.oid = pg_catalog.pg_partition_root(c.oid)
JOIN pg_catalog.pg_namespace n ON n.oid = r.relnamespace
WHERE c.oid = $1::int8::oid AND c.relispartition
