-- How a table ($1) is partitioned: strategy, the name of its only key column (null: several, or an expression), its
-- DEFAULT partition, and what its column ($2, counted in $3) can say about time. Expects pg_partitioned_table; read only.
SELECT c.relkind::text AS relkind, p.partstrat::text AS strategy,
       CASE WHEN p.partnatts = 1 AND p.partattrs[0] <> 0 THEN
           (SELECT a.attname::text FROM pg_catalog.pg_attribute a WHERE a.attrelid = c.oid AND a.attnum = p.partattrs[0])
       END AS key_column,
       pg_catalog.pg_get_partkeydef(c.oid) AS key_definition,
       CASE WHEN p.partdefid <> 0 THEN p.partdefid::regclass::text END AS default_partition,
       ebb.partition_kind(c.oid, $2, $3) AS kind
FROM pg_catalog.pg_class c
LEFT JOIN pg_catalog.pg_partitioned_table p ON p.partrelid = c.oid
WHERE c.oid = $1::int8::oid
