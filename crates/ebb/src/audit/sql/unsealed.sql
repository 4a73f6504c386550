-- How many records wait for a seal, counted up to $1.
-- Index: none; the list is short, and at most $1 of it are read. Lock: none.
SELECT count(*) FROM (SELECT FROM ebb.audit_pending LIMIT $1) AS waiting
