-- A split ($1) is in a state ($2) with so many steps done ($3). Expects split_pkey.
UPDATE ebb.split SET state = $2, step = $3, changed_at = clock_timestamp() WHERE relation = $1
