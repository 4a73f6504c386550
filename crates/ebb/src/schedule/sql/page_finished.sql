-- Events that ended, the latest first: $1 sink, $2 state, $3 delivered later than this, $4 and $5 the end and id after which the page
-- starts, $6 how many, $7 not before this time, so that few partitions are read. Expects event_history_finished_at and
-- event_history_dead. Read only.
SELECT COALESCE(h.recurring, h.id) AS event, h.id AS occurrence, h.sink, h.state, h.due_at, NULL::timestamptz AS ready_at, h.finished_at,
       h.attempts, h.token AS version, h.error AS last_error, h.node, h.dedupe_key, ebb.now() AS now
FROM ebb.event_history h
WHERE h.finished_at >= $7
  AND ($4::timestamptz IS NULL OR h.finished_at <= $4 AND (h.finished_at, h.id) < ($4, $5::uuid))
  AND ($1::text IS NULL OR h.sink = $1)
  AND ($2::text IS NULL OR h.state = $2)
  AND ($3::interval IS NULL OR h.state = 'done' AND h.finished_at > h.due_at + $3)
ORDER BY h.finished_at DESC, h.id DESC
LIMIT $6
