-- The partitions of a table ($1 of kind $2, zone $3, kept $4) with rows and bytes, for people. Asks for file sizes: not
-- for the chore. Read only.
SELECT b.oid::int8 AS oid, b.schema_name, b.table_name, b.lower_bound::text AS lower_bound, b.upper_bound::text AS upper_bound,
       b.pending, COALESCE(ebb.is_over(b.upper_bound AT TIME ZONE ebb.partition_zone($2, $3), $4::interval, $3), false) AS expired, GREATEST(c.reltuples, 0)::int8 AS rows,
       (SELECT COALESCE(sum(pg_catalog.pg_total_relation_size(t.relid)), 0)::int8 FROM pg_catalog.pg_partition_tree(b.oid::regclass) t) AS bytes,
       CASE WHEN b.lower_bound IS NULL THEN 'default'
            WHEN b.pending THEN 'detach pending'
            WHEN ebb.is_over(b.upper_bound AT TIME ZONE ebb.partition_zone($2, $3), $4::interval, $3) THEN 'expired'
            WHEN b.upper_bound <= ebb.now() AT TIME ZONE ebb.partition_zone($2, $3) THEN 'past'
            WHEN b.lower_bound <= ebb.now() AT TIME ZONE ebb.partition_zone($2, $3) THEN 'current'
            ELSE 'ahead' END AS state
FROM ebb.partition_bounds($1::int8::oid, $2) b
JOIN pg_catalog.pg_class c ON c.oid = b.oid
ORDER BY b.lower_bound NULLS LAST
