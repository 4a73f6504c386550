-- The partitions of a table ($1 of kind $2) that reach over more than one period ($3), oldest first. Read only.
SELECT b.oid::int8 AS oid, b.schema_name, b.table_name, b.relkind, b.lower_bound::text AS lower_bound, b.upper_bound::text AS upper_bound,
       b.pending, GREATEST(c.reltuples, 0)::int8 AS rows, pg_catalog.pg_table_size(b.oid) AS bytes
FROM ebb.partition_bounds($1::int8::oid, $2) b
JOIN pg_catalog.pg_class c ON c.oid = b.oid
WHERE b.upper_bound > b.lower_bound + ('1 ' || $3)::interval
ORDER BY b.lower_bound
