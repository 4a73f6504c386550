-- Events that have not ended, in the order of their turn: $1 sink, $2 state, $3 still there so long after their due time, $4 and $5 the
-- turn and id after which the page starts, $6 how many. Expects event_ready, along which each sink's are read in order; those that
-- are running are due, and those that failed are along event_failed. Read only.
SELECT COALESCE(e.recurring, e.id) AS event, e.id AS occurrence, e.sink, e.state, e.due_at, e.ready_at, NULL::timestamptz AS finished_at,
       e.attempts, e.token AS version, e.error AS last_error, e.node, e.dedupe_key, ebb.now() AS now
FROM ebb.policy p
CROSS JOIN LATERAL (
    SELECT e.*, CASE WHEN e.lease_until > clock_timestamp() THEN 'running' WHEN e.attempts > 0 THEN 'failed' ELSE 'pending' END AS state
    FROM ebb.event e
    WHERE e.sink = p.name
      AND ($4::timestamptz IS NULL OR e.ready_at >= $4 AND (e.ready_at, e.id) > ($4, $5::uuid))
      AND ($2::text IS DISTINCT FROM 'pending' OR e.attempts = 0)
      AND ($2::text IS DISTINCT FROM 'failed' OR e.error IS NOT NULL AND e.attempts > 0 AND (e.lease_until > clock_timestamp()) IS NOT TRUE)
      AND ($2::text IS DISTINCT FROM 'running' OR e.ready_at <= ebb.now() AND e.lease_until > clock_timestamp())
      AND ($3::interval IS NULL OR e.due_at < ebb.now() - $3)
    ORDER BY e.ready_at, e.id
    LIMIT $6
) AS e
WHERE p.kind = 'sink' AND ($1::text IS NULL OR p.name = $1)
ORDER BY e.ready_at, e.id
LIMIT $6
