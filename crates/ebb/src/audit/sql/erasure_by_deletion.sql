-- The erasure of a deletion ($1). Index: audit_deletion; the sum keeps the server from reading the records by their id instead, newest
-- first, which it expects to be short. Lock: none.
SELECT id FROM ebb.audit WHERE action = 'erase' AND details ->> 'deletion' = $1 ORDER BY id + 0 DESC LIMIT 1
