-- Takes up events whose lease ran out: ready again in their old place, or dead when it was the last attempt ($1 sinks, $2 how
-- often each tries). Expects event_lease. Locks rows FOR UPDATE SKIP LOCKED.
WITH expired AS (
    SELECT e.id, COALESCE(e.attempts >= t.attempts, false) AS last
    FROM ebb.event e
    LEFT JOIN unnest($1::text[], $2::int4[]) AS t (sink, attempts) ON t.sink = e.sink
    WHERE e.lease_until <= clock_timestamp()
    ORDER BY e.lease_until LIMIT 1000
    FOR UPDATE OF e SKIP LOCKED
),
dead AS (
    DELETE FROM ebb.event e USING expired x WHERE e.id = x.id AND x.last RETURNING e.*
),
kept AS (
    INSERT INTO ebb.event_history (id, recurring, sink, state, due_at, finished_at, token, attempts, created_at, max_late, dedupe_key,
                                   subject_policy, subject_id, node, error, response, body)
    SELECT d.id, d.recurring, d.sink, 'dead', d.due_at, ebb.now(), d.token, d.attempts, d.created_at, d.max_late, d.dedupe_key,
           d.subject_policy, d.subject_id, d.node, 'node ' || d.node || ' held the last attempt and went away', d.response, d.body
    FROM dead d
),
again AS (
    UPDATE ebb.event e SET lease_until = NULL, error = 'node ' || e.node || ' held it and went away'
    FROM expired x WHERE e.id = x.id AND NOT x.last
    RETURNING e.id, e.recurring, e.sink, e.attempts, e.error
)
SELECT COALESCE(a.recurring, a.id) AS event, a.sink, false AS dead, a.attempts, a.error FROM again a
UNION ALL
SELECT COALESCE(d.recurring, d.id), d.sink, true, d.attempts, 'node ' || d.node || ' held the last attempt and went away' FROM dead d
