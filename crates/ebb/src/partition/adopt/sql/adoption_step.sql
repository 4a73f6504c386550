-- An adoption ($1) has come so far: $2 state, $3 steps done. Expects adoption_pkey.
UPDATE ebb.adoption SET state = $2, step = $3, changed_at = clock_timestamp() WHERE relation = $1
