-- Whether deleting rows of a table ($1) may take what others keep: rows go along with them by ON DELETE CASCADE, or the table is that of
-- subjects whom a policy erases. Index: retain_pkey; the catalog's. Read only.
WITH whole AS (
    SELECT COALESCE(pg_catalog.pg_partition_root($1::int8::oid::regclass)::oid, $1::int8::oid) AS oid
)
SELECT EXISTS (SELECT FROM pg_catalog.pg_constraint c, whole
               WHERE c.contype = 'f' AND c.confdeltype = 'c' AND c.conparentid = 0
                 AND COALESCE(pg_catalog.pg_partition_root(c.confrelid)::oid, c.confrelid) = whole.oid)
    OR EXISTS (SELECT FROM ebb.policy p, whole
               WHERE p.kind = 'retain' AND p.enabled AND p.spec ? 'deleted_at' AND ebb.policy_table(p.spec ->> 'table') = whole.oid)
