-- The table that each of these ($1) is a partition of, or the table itself. Index: the catalog's; read only.
SELECT t.oid, c.oid::int8, n.nspname::text, c.relname::text
FROM unnest($1::int8[]) AS t (oid)
JOIN pg_catalog.pg_class c ON c.oid = COALESCE(pg_catalog.pg_partition_root(t.oid::oid::regclass)::oid, t.oid::oid)
JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
