-- Nobody looks at a table any more through a view that is older than what was applied to the parts of its split ($1). Expects split_pkey.
UPDATE ebb.split SET applied = false, changed_at = clock_timestamp() WHERE relation = $1
