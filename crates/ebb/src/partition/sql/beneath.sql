-- Partitions ($1), and whatever they are partitioned into themselves. Read only.
SELECT t.relid::oid::int8 FROM unnest($1::int8[]) x, pg_catalog.pg_partition_tree(x::oid::regclass) t
