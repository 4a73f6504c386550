-- Tables of the trees that a hold reaches a policy ($1) through, and the conditions that are asked of its rows. Index: gate_pkey,
-- reach_relation, retain_pkey; read only.
SELECT t.name, r.conditions
FROM ebb.gate g
JOIN ebb.reach r ON r.relation = ANY (g.relations)
JOIN ebb.retain p ON p.policy = r.policy
CROSS JOIN LATERAL unnest(p.tables) AS t (name)
WHERE g.policy = $1
