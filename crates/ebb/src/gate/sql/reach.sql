-- How far holds of a policy ($1) reach. Index: reach_pkey; read only.
SELECT r.relation, r.conditions, r.erased FROM ebb.reach r WHERE r.policy = $1
