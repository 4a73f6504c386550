-- Gives one lease back, naming owner and generation. Expects lease_pkey.
UPDATE ebb.lease
SET holder = NULL, node = NULL, expires_at = '-infinity'
WHERE unit = $1 AND holder = $2 AND generation = $3
