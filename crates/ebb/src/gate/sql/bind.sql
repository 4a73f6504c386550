-- Whether a hold can bind these policies ($1). Index: gate_pkey, reach_relation. Lock: the rows, held already.
UPDATE ebb.gate g
SET bound = EXISTS (SELECT FROM ebb.reach r WHERE r.relation = ANY (g.relations))
WHERE g.policy = ANY ($1)
