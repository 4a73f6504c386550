-- Which of these claims ($1 ids, $2 tokens) are still this node's, of events that nobody has cancelled since. Expects event_pkey and
-- event_cancel_pkey. Read only.
SELECT e.id
FROM unnest($1::uuid[], $2::int8[]) AS t (id, token)
JOIN ebb.event e ON e.id = t.id AND e.token = t.token
WHERE NOT EXISTS (SELECT FROM ebb.event_cancel c WHERE c.id = e.id)
