-- Gives back every key that a guard ($1 namespace) has claimed, and forgets for how long. Expects once_key_pkey.
WITH terms AS (DELETE FROM ebb.guard_term WHERE namespace = $1)
DELETE FROM ebb.once_key WHERE namespace = $1
