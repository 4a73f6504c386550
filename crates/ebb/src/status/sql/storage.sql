-- What each of these tables ($1) with its partitions and children takes, and its rows by the last statistics: figures of the
-- catalog and of the file system, no row is read. Expects pg_inherits (inhparent); read only.
WITH RECURSIVE tree AS (
    SELECT root::oid AS root, root::oid AS oid FROM unnest($1::int8[]) AS root
    UNION
    SELECT tree.root, i.inhrelid FROM pg_inherits i JOIN tree ON i.inhparent = tree.oid
)
SELECT tree.root::int8 AS root, count(*) AS leaves,
       COALESCE(sum(GREATEST(c.reltuples, 0)), 0)::int8 AS rows,
       COALESCE(sum(pg_table_size(c.oid)), 0)::int8 AS table_bytes,
       COALESCE(sum(pg_indexes_size(c.oid)), 0)::int8 AS index_bytes
FROM tree
JOIN pg_class c ON c.oid = tree.oid
WHERE c.relkind = 'r'
GROUP BY tree.root
