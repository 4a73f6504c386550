-- Prolongs the claims of what is still at work: $1 ids, $2 tokens, $3 by how much from now. Expects event_pkey. Returns the
-- ids that are still this node's.
UPDATE ebb.event e
SET lease_until = clock_timestamp() + t.lease
FROM unnest($1::uuid[], $2::int8[], $3::interval[]) AS t (id, token, lease)
WHERE e.id = t.id AND e.token = t.token AND e.lease_until IS NOT NULL
RETURNING e.id
