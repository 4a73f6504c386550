-- The tables that share rows with each of these ($1): itself and what it is a partition or a child of, and what is a child of it, at any
-- depth, which is what a sweep goes through; partitions of it are not told. Index: the catalog's; read only.
WITH RECURSIVE up AS (
    SELECT t.oid::oid AS of, t.oid::oid AS oid FROM unnest($1::int8[]) AS t (oid)
    UNION
    SELECT up.of, i.inhparent FROM up JOIN pg_catalog.pg_inherits i ON i.inhrelid = up.oid
), down AS (
    SELECT t.oid::oid AS of, t.oid::oid AS oid FROM unnest($1::int8[]) AS t (oid)
    UNION
    SELECT down.of, i.inhrelid FROM down
    JOIN pg_catalog.pg_inherits i ON i.inhparent = down.oid
    JOIN pg_catalog.pg_class c ON c.oid = i.inhrelid AND NOT c.relispartition
)
SELECT kin.of::int8, c.oid::int8, n.nspname::text, c.relname::text, kin.is_above
FROM (SELECT up.of, up.oid, true AS is_above FROM up WHERE up.oid <> up.of UNION ALL SELECT down.of, down.oid, false FROM down) AS kin
JOIN pg_catalog.pg_class c ON c.oid = kin.oid
JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
ORDER BY 1, 3, 4
