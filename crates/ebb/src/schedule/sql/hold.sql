-- Prolongs the claims of what is still at work: $1 ids, $2 tokens, $3 by how much from now. Expects event_pkey. Passes by rows that
-- somebody holds, so that one does not keep the others from it. Returns the ids that are still this node's.
WITH mine AS (
    SELECT e.id, t.lease
    FROM unnest($1::uuid[], $2::int8[], $3::interval[]) AS t (id, token, lease)
    JOIN ebb.event e ON e.id = t.id AND e.token = t.token AND e.lease_until IS NOT NULL
    FOR UPDATE OF e SKIP LOCKED
)
UPDATE ebb.event e
SET lease_until = clock_timestamp() + m.lease
FROM mine m
WHERE e.id = m.id
RETURNING e.id
