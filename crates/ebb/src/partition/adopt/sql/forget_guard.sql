-- Gives back every key that a guard ($1 namespace) has claimed. Expects once_key_pkey.
DELETE FROM ebb.once_key WHERE namespace = $1
