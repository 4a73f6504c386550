-- Attempts that failed and will be made again: $1 ids, $2 tokens, $3 how long from now, $4 errors, $5 responses, which join
-- those before. Expects event_pkey. Returns the ids that counted.
UPDATE ebb.event e
SET lease_until = NULL, ready_at = ebb.clock() + t.wait, error = t.error,
    response = ebb.event_answer(e.error, e.response, t.response)
FROM unnest($1::uuid[], $2::int8[], $3::interval[], $4::text[], $5::jsonb[]) AS t (id, token, wait, error, response)
WHERE e.id = t.id AND e.token = t.token
RETURNING e.id
