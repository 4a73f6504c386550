-- From now on holds of a policy ($1) reach into a table ($2), into rows of which any of these is true ($3; $4 those that
-- go with the subject). Index: reach_pkey.
INSERT INTO ebb.reach (policy, relation, conditions, erased, relid) VALUES ($1, $2, $3, $4, ebb.table_named($2))
ON CONFLICT (policy, relation) DO UPDATE
SET conditions = EXCLUDED.conditions, erased = EXCLUDED.erased, relid = EXCLUDED.relid, home = EXCLUDED.home
