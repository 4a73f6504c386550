-- Holds of a policy ($1) do not reach into these tables ($2) any more. Index: reach_pkey.
DELETE FROM ebb.reach WHERE policy = $1 AND relation = ANY ($2)
