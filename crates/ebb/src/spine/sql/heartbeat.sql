-- Prolongs this node's leases ($1 holder, $2 term, $3 units it still works on). Expects lease_pkey; takes the row
-- lock of a non-key UPDATE, which a running batch does not block.
UPDATE ebb.lease
SET expires_at = clock_timestamp() + $2
WHERE unit = ANY($3) AND holder = $1
RETURNING unit
