-- What deleting rows of tables ($1) takes along by ON DELETE CASCADE, at any depth, that belongs to subjects of a policy which
-- does not know the table itself, so that no gate could keep it. Index: reach_relation; the catalog's. Read only.
WITH RECURSIVE down AS (
    SELECT t.oid::oid AS top, t.oid::oid AS oid FROM unnest($1::int8[]) AS t (oid) WHERE EXISTS (SELECT FROM ebb.reach)
    UNION
    SELECT down.top, COALESCE(pg_catalog.pg_partition_root(c.conrelid)::oid, c.conrelid)
    FROM down
    JOIN pg_catalog.pg_constraint c ON c.contype = 'f' AND c.confdeltype = 'c' AND c.conparentid = 0
     AND COALESCE(pg_catalog.pg_partition_root(c.confrelid)::oid, c.confrelid) = down.oid
), named AS (
    SELECT down.top, down.oid, n.nspname || '.' || c.relname AS label
    FROM down
    JOIN pg_catalog.pg_class c ON c.oid = down.oid
    JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
)
SELECT self.label AS top, r.relation, r.policy
FROM named
JOIN named self ON self.top = named.top AND self.oid = self.top
JOIN ebb.reach r ON r.relation = named.label AND r.erased <> '{}'
WHERE named.oid <> named.top AND NOT EXISTS (SELECT FROM ebb.reach own WHERE own.policy = r.policy AND own.relation = self.label)
ORDER BY 1, 2, 3
