-- A table that holds in force reach into and that is called otherwise by now, unless a policy that was applied since knows it: whose holds,
-- how many, the table's name then and now, whether it is that of the subjects themselves, and whether another one has the name. What is a partition of the one that has its
-- name now was adopted. Only of tables with these numbers ($1; null: of all), and of a policy ($2; null: of all) these that it knows by name ($3).
-- Index: reach_pkey, hold_active. Read only.
SELECT r.policy, h.holds, r.relation, now.label, COALESCE(p.relation = r.relation, false) AS is_root,
       ebb.table_named(r.relation) IS NOT NULL AS is_taken
FROM ebb.reach r
JOIN pg_catalog.pg_class c ON c.oid = r.relid
LEFT JOIN ebb.retain p ON p.policy = r.policy
CROSS JOIN LATERAL (SELECT ebb.relation_label(r.relid) AS label) AS now
CROSS JOIN LATERAL (SELECT count(*) AS holds FROM ebb.hold h
                    WHERE h.policy = r.policy AND h.lifted_at IS NULL AND (h.until IS NULL OR h.until > ebb.now())) AS h
WHERE r.home = ebb.home() AND h.holds > 0 AND now.label <> r.relation
  AND ($1::int8[] IS NULL OR r.relid = ANY ($1::int8[]::oid[]))
  AND ($2::text IS NULL OR r.policy = $2 AND r.relation = ANY ($3::text[]))
  AND NOT EXISTS (SELECT FROM pg_catalog.pg_partition_ancestors(r.relid) AS a (relid) WHERE a.relid = ebb.table_named(r.relation))
ORDER BY 5 DESC, 1, 3
LIMIT 1
