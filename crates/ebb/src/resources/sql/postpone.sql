-- The store did not drop this one ($1) for a reason ($2); $3 blocked (nothing but an operator helps) or not; $4 tried again
-- after. Expects resource_pkey; locks the row.
UPDATE ebb.resource
SET state = CASE WHEN $3 THEN 'blocked' ELSE 'dropping' END, problem = $2, retry_at = ebb.clock() + $4
WHERE id = $1 AND state IN ('dropping', 'blocked')
