-- The table that a policy ($1 kind, $2 name) was about when it was applied, by the name it has now, where the one that it had is that of
-- another table ($3). What is below that one, by a partition or by inheritance, has its rows there; what can have no row leaves none.
-- Index: anchor_pkey; the catalog's. Read only.
WITH RECURSIVE was AS (
    SELECT c.oid FROM ebb.anchor a
    JOIN pg_catalog.pg_class c ON c.oid = a.relid
    WHERE a.kind = $1 AND a.policy = $2 AND a.home = ebb.home() AND ebb.policy_table(a.typed) = $3::int8::oid
), up AS (
    SELECT was.oid FROM was
    UNION
    SELECT i.inhparent FROM up JOIN pg_catalog.pg_inherits i ON i.inhrelid = up.oid
)
SELECT ebb.relation_label(was.oid) FROM was
WHERE NOT EXISTS (SELECT FROM up WHERE up.oid = $3::int8::oid)
  AND NOT EXISTS (SELECT FROM pg_catalog.pg_constraint k WHERE k.conrelid = was.oid AND k.contype = 'c'
                  AND pg_catalog.pg_get_expr(k.conbin, k.conrelid) = 'false')
