-- What deleting rows of tables ($1) takes along by ON DELETE CASCADE, at any depth, that belongs to subjects whom no gate of the
-- table could keep it for: of a policy which does not know the table itself, or where a row below may be another subject's than
-- the row above. Whether it may: there is more than one way by which it goes, in the catalog or the approved tree; or its table is
-- called otherwise than when its policy was applied. Index: reach_relation, retain_pkey; the catalog's. Read only.
WITH RECURSIVE keys AS MATERIALIZED (
    SELECT c.conrelid, c.conkey, c.confdeltype,
           COALESCE(pg_catalog.pg_partition_root(c.conrelid)::oid, c.conrelid) AS child,
           COALESCE(pg_catalog.pg_partition_root(c.confrelid)::oid, c.confrelid) AS parent
    FROM pg_catalog.pg_constraint c
    WHERE c.contype = 'f' AND c.confdeltype = 'c' AND c.conparentid = 0
), down AS (
    SELECT whole.oid AS top, whole.oid
    FROM unnest($1::int8[]) AS t (oid)
    CROSS JOIN LATERAL (SELECT COALESCE(pg_catalog.pg_partition_root(t.oid::oid::regclass)::oid, t.oid::oid) AS oid) AS whole
    WHERE EXISTS (SELECT FROM ebb.reach)
    UNION
    SELECT down.top, keys.child FROM down JOIN keys ON keys.parent = down.oid
), named AS (
    SELECT down.top, down.oid, ebb.relation_label(down.oid) AS label FROM down
), cascades AS (
    -- Partitions that each have the same key for themselves are one.
    SELECT DISTINCT child.top, child.label, parent.label AS parent,
           ARRAY(SELECT a.attname::text FROM unnest(keys.conkey) WITH ORDINALITY AS k (num, at)
                 JOIN pg_catalog.pg_attribute a ON a.attrelid = keys.conrelid AND a.attnum = k.num ORDER BY k.at) AS columns
    FROM keys
    JOIN named child ON child.oid = keys.child
    JOIN named parent ON parent.oid = keys.parent AND parent.top = child.top
), approved AS (
    SELECT r.policy, e ->> 'table' AS label, e ->> 'parent' AS parent,
           ARRAY(SELECT jsonb_array_elements_text(e -> 'columns')) AS columns
    FROM ebb.retain r
    CROSS JOIN LATERAL jsonb_array_elements(COALESCE(r.tree -> 'edges', '[]')) AS e
    WHERE e ->> 'action' = 'delete'
), found AS (
    SELECT self.top, self.label AS of, named.label, r.policy, r.relation <> named.label AS renamed,
           EXISTS (SELECT FROM ebb.reach own WHERE own.policy = r.policy AND own.relation = self.label) AS own
    FROM named
    JOIN named self ON self.top = named.top AND self.oid = self.top
    JOIN ebb.reach r ON r.erased <> '{}' AND (r.relation = named.label OR (r.relid = named.oid AND r.home = ebb.home()))
), ways AS (
    SELECT found.top, found.policy, found.of, found.label, way.parent
    FROM found
    CROSS JOIN LATERAL (
        SELECT c.parent, c.columns FROM cascades c WHERE c.top = found.top AND c.label = found.label
        UNION
        SELECT a.parent, a.columns FROM approved a WHERE a.policy = found.policy AND a.label = found.label
    ) AS way
    WHERE found.own AND found.label <> found.of
), single AS (
    SELECT top, policy, label, min(parent) AS parent FROM ways GROUP BY top, policy, label HAVING count(*) = 1
), safe AS (
    -- Whoever the row above belongs to is the only one the row below belongs to.
    SELECT top, policy, label FROM found WHERE own AND label = of
    UNION
    SELECT safe.top, safe.policy, single.label
    FROM safe
    JOIN single ON single.top = safe.top AND single.policy = safe.policy AND single.parent = safe.label
)
SELECT found.top::int8, found.label AS relation, found.policy
FROM found
WHERE CASE WHEN found.label = found.of
           THEN EXISTS (SELECT FROM cascades c WHERE c.top = found.top AND c.label = found.of)
           ELSE found.renamed OR NOT EXISTS (SELECT FROM safe s WHERE s.top = found.top AND s.policy = found.policy AND s.label = found.label) END
ORDER BY 1, 2, 3
