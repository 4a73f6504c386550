-- Whether deleting rows of a table ($1) may take what others keep: rows go along with them by ON DELETE CASCADE, or they are those of
-- subjects whom a policy erases, by a table above or below it. Index: retain_pkey; the catalog's. Read only.
WITH RECURSIVE up AS (
    SELECT $1::int8::oid AS oid
    UNION
    SELECT i.inhparent FROM up JOIN pg_catalog.pg_inherits i ON i.inhrelid = up.oid
), down AS (
    SELECT $1::int8::oid AS oid
    UNION
    SELECT i.inhrelid FROM down
    JOIN pg_catalog.pg_inherits i ON i.inhparent = down.oid
    JOIN pg_catalog.pg_class c ON c.oid = i.inhrelid AND NOT c.relispartition
), kin AS (
    SELECT oid FROM up UNION SELECT oid FROM down
)
SELECT EXISTS (SELECT FROM pg_catalog.pg_constraint c
               WHERE c.contype = 'f' AND c.confdeltype = 'c' AND c.conparentid = 0
                 AND COALESCE(pg_catalog.pg_partition_root(c.confrelid)::oid, c.confrelid) IN (SELECT oid FROM kin))
    OR EXISTS (SELECT FROM ebb.policy p
               WHERE p.kind = 'retain' AND p.enabled AND p.spec ? 'deleted_at' AND ebb.policy_table(p.spec ->> 'table') IN (SELECT oid FROM kin))
