-- How far holds of a policy ($1) reach, and whether the table is the one that had its name then. Index: reach_pkey; read only.
SELECT r.relation, r.conditions, r.erased, r.home = ebb.home() AND r.relid IS NOT DISTINCT FROM ebb.table_named(r.relation) AS same FROM ebb.reach r WHERE r.policy = $1
