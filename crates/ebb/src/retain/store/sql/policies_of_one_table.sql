-- A table whose subjects have more than one policy that nodes follow, with those. Index: policy_pkey; read only.
SELECT r.relation, array_agg(r.policy ORDER BY r.policy)
FROM ebb.retain r JOIN ebb.policy p ON p.kind = 'retain' AND p.name = r.policy AND p.enabled
WHERE r.subjects
GROUP BY r.relation HAVING count(*) > 1
ORDER BY r.relation LIMIT 1
