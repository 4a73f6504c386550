-- What a table ($1) with its partitions and children takes, and its rows by the last statistics: figures of the catalog and
-- of the file system, no row is read. Expects pg_inherits (inhparent); read only.
WITH RECURSIVE tree AS (
    SELECT $1::int8::oid AS oid
    UNION
    SELECT i.inhrelid FROM pg_inherits i JOIN tree ON i.inhparent = tree.oid
)
SELECT count(*) AS leaves,
       COALESCE(sum(GREATEST(c.reltuples, 0)), 0)::int8 AS rows,
       COALESCE(sum(pg_table_size(c.oid)), 0)::int8 AS table_bytes,
       COALESCE(sum(pg_indexes_size(c.oid)), 0)::int8 AS index_bytes
FROM tree
JOIN pg_class c ON c.oid = tree.oid
WHERE c.relkind = 'r'
