-- Events that fit, the most urgent first: $1 sink, $2 state, $3 delivered at least so late or open and
-- already so late, $4 not delivered so long after their due time, $5 how many. Expects event_ready and event_history_finished_at. Read only.
SELECT v.event, v.occurrence, v.sink, v.state, v.due_at, v.ready_at, v.finished_at, v.attempts, v.version, v.last_error, v.node,
       v.dedupe_key, ebb.now() AS now
FROM ebb.v_events v
WHERE ($1::text IS NULL OR v.sink = $1)
  AND ($2::text IS NULL OR v.state = $2)
  AND ($3::interval IS NULL OR COALESCE(v.finished_at, ebb.now()) > v.due_at + $3 AND v.state IN ('done', 'pending', 'running', 'failed'))
  AND ($4::interval IS NULL OR v.finished_at IS NULL AND v.due_at < ebb.now() - $4)
ORDER BY v.finished_at DESC NULLS FIRST, v.due_at, v.occurrence
LIMIT $5
