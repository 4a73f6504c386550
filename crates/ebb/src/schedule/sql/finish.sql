-- Ends events and keeps them in the history: $1 ids, $2 tokens, $3 states, $4 errors, $5 responses, $6 how many attempts do not count, $7 node. One whose
-- token is another's by now is left alone. What was answered before is kept with the last answer, where there was an attempt before. Expects event_pkey. Returns the ids that counted.
WITH told AS (
    SELECT * FROM unnest($1::uuid[], $2::int8[], $3::text[], $4::text[], $5::jsonb[], $6::int4[]) AS t (id, token, state, error, response, uncounted)
),
gone AS (
    DELETE FROM ebb.event e USING told t WHERE e.id = t.id AND e.token = t.token
    RETURNING e.id, e.recurring, e.sink, t.state, e.due_at, e.token, e.attempts - t.uncounted AS attempts, e.created_at, e.max_late, e.dedupe_key,
              e.subject_policy, e.subject_id, CASE WHEN t.state = 'done' THEN t.error ELSE COALESCE(t.error, e.error) END AS error,
              CASE WHEN e.error IS NULL AND e.response IS NULL THEN t.response
                   ELSE ebb.event_answer(e.error, e.response, t.response) END AS response, e.body
)
INSERT INTO ebb.event_history (id, recurring, sink, state, due_at, finished_at, token, attempts, created_at, max_late, dedupe_key,
                               subject_policy, subject_id, node, error, response, body)
SELECT g.id, g.recurring, g.sink, g.state, g.due_at, ebb.now(), g.token, g.attempts, g.created_at, g.max_late, g.dedupe_key,
       g.subject_policy, g.subject_id, $7, g.error, g.response, g.body
FROM gone g
RETURNING id
