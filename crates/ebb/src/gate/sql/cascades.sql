-- The whole tables of these ($1), with the tables whose rows go along with theirs by ON DELETE CASCADE, at any depth; a table is
-- among those itself where its rows take others of it along. Index: the catalog's; read only.
WITH RECURSIVE keys AS MATERIALIZED (
    SELECT COALESCE(pg_catalog.pg_partition_root(c.conrelid)::oid, c.conrelid) AS child,
           COALESCE(pg_catalog.pg_partition_root(c.confrelid)::oid, c.confrelid) AS parent
    FROM pg_catalog.pg_constraint c
    WHERE c.contype = 'f' AND c.confdeltype = 'c' AND c.conparentid = 0
), down AS (
    SELECT whole.oid AS top, keys.child AS oid
    FROM unnest($1::int8[]) AS t (oid)
    CROSS JOIN LATERAL (SELECT COALESCE(pg_catalog.pg_partition_root(t.oid::oid::regclass)::oid, t.oid::oid) AS oid) AS whole
    JOIN keys ON keys.parent = whole.oid
    UNION
    SELECT down.top, keys.child FROM down JOIN keys ON keys.parent = down.oid
)
SELECT top::int8, oid::int8 FROM down ORDER BY 1, 2
