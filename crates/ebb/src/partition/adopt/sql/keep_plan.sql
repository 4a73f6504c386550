-- The plan of an adoption ($1) has grown ($2). Expects adoption_pkey.
UPDATE ebb.adoption SET plan = $2 WHERE relation = $1
