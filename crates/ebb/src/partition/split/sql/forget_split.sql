-- A split ($1) is over. Expects split_pkey.
DELETE FROM ebb.split WHERE relation = $1
