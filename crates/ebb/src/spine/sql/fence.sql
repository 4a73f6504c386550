-- The first statement of every batch: no row, no batch. Expects lease_pkey. FOR KEY SHARE lets heartbeats through
-- and makes a takeover pass by until this transaction has ended.
SELECT pg_backend_pid()
FROM ebb.lease
WHERE unit = $1 AND holder = $2 AND generation = $3
FOR KEY SHARE
