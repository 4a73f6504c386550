-- Forgets the copy of a deletion ($1) whose term was over before all of it was there. Index: both primary keys.
WITH parts AS (DELETE FROM ebb.snapshot_part WHERE deletion = $1)
DELETE FROM ebb.snapshot WHERE deletion = $1
