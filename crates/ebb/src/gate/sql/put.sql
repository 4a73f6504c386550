-- The gate of a policy ($1) and the tables it takes rows of ($2). Index: gate_pkey, reach_relation. Lock: the row, held
-- already where it exists.
INSERT INTO ebb.gate (policy, relations, bound)
VALUES ($1, $2, EXISTS (SELECT FROM ebb.reach r WHERE r.relation = ANY ($2)))
ON CONFLICT (policy) DO UPDATE SET relations = EXCLUDED.relations, bound = EXCLUDED.bound
