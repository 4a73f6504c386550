-- The statement that would attach a partition ($1, of kind $2, zone $3) again, once it is out; none where its period is not past,
-- and gets a new one. Read only.
SELECT pg_catalog.format('ALTER TABLE %I.%I ATTACH PARTITION %I.%I %s', pn.nspname, p.relname, b.schema_name, b.table_name, pg_catalog.pg_get_expr(c.relpartbound, c.oid))
FROM pg_catalog.pg_inherits i
JOIN pg_catalog.pg_class c ON c.oid = i.inhrelid
JOIN pg_catalog.pg_class p ON p.oid = i.inhparent
JOIN pg_catalog.pg_namespace pn ON pn.oid = p.relnamespace
JOIN ebb.partition_bounds(i.inhparent, $2) b ON b.oid = c.oid
WHERE i.inhrelid = $1::int8::oid AND b.upper_bound <= ebb.now() AT TIME ZONE ebb.partition_zone($2, $3)
