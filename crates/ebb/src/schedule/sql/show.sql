-- Every occurrence of an event ($1: its id, or that of an occurrence), the newest first. Expects event_pkey, event_recurring,
-- event_history_id and event_history_recurring. Read only.
SELECT COALESCE(e.recurring, e.id) AS event, e.id AS occurrence, e.sink,
       CASE WHEN e.lease_until > clock_timestamp() THEN 'running' WHEN e.attempts > 0 THEN 'failed' ELSE 'pending' END AS state,
       e.due_at, e.ready_at, NULL::timestamptz AS finished_at, e.attempts, e.token AS version, e.error AS last_error, e.node,
       e.dedupe_key, ebb.now() AS now, NULLIF(e.response - 'at' - 'earlier', '{}') AS response, timestamptz 'epoch' + (e.response ->> 'at')::bigint * interval '1 microsecond' AS answered_at,
       e.response -> 'earlier' AS earlier, e.body, e.subject_policy, e.subject_id
FROM ebb.event e WHERE e.id = $1 OR e.recurring = $1
UNION ALL
SELECT COALESCE(h.recurring, h.id), h.id, h.sink, h.state, h.due_at, NULL, h.finished_at, h.attempts, h.token, h.error, h.node,
       h.dedupe_key, ebb.now(), NULLIF(h.response - 'at' - 'earlier', '{}'),
       timestamptz 'epoch' + (h.response ->> 'at')::bigint * interval '1 microsecond', h.response -> 'earlier', h.body,
       h.subject_policy, h.subject_id
FROM ebb.event_history h WHERE h.id = $1 OR h.recurring = $1
ORDER BY due_at DESC LIMIT 100
