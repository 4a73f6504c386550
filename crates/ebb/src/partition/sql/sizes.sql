-- Pages of the partitions that would go ($2) and of all partitions ($1): what the brake compares. Reads file sizes, so
-- it is asked only when something expired.
SELECT COALESCE(sum(pg_catalog.pg_relation_size(t.relid)) FILTER (
           WHERE t.relid IN (SELECT p.relid FROM unnest($2::int8[]) x, pg_catalog.pg_partition_tree(x::oid::regclass) p)), 0)::int8 / 8192 AS expired,
       COALESCE(sum(pg_catalog.pg_relation_size(t.relid)), 0)::int8 / 8192 AS total
FROM pg_catalog.pg_partition_tree($1::int8::oid::regclass) t
WHERE t.isleaf
