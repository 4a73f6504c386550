-- The tables that really hold the rows of each of $1: itself, its partitions, its inheritance children, at any depth.
-- Expects pg_inherits (inhparent); read only. Sizes come from the relation's own file, never from a sum over the tree.
WITH RECURSIVE tree AS (
    SELECT root::oid AS root, root::oid AS oid FROM unnest($1::int8[]) AS root
    UNION
    SELECT tree.root, i.inhrelid FROM pg_catalog.pg_inherits i JOIN tree ON i.inhparent = tree.oid
)
SELECT tree.root::int8 AS root, c.oid::int8 AS oid, n.nspname::text AS schema, c.relname::text AS name,
       c.relkind::text AS kind, GREATEST(c.reltuples, 0)::int8 AS rows, c.relpages::int8 AS pages
FROM tree
JOIN pg_catalog.pg_class c ON c.oid = tree.oid
JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind IN ('r', 'f')
ORDER BY n.nspname, c.relname
