-- Events that have not ended, in the order of their turn: $1 sink, $2 state, $3 still there so long after their due time, $4 and $5 the
-- turn and id after which the page starts, $6 how many. Expects event_ready and event_lease: each sink's are read in order. Read only.
SELECT COALESCE(e.recurring, e.id) AS event, e.id AS occurrence, e.sink, e.state, e.due_at, e.ready_at, NULL::timestamptz AS finished_at,
       e.attempts, e.token AS version, e.error AS last_error, e.node, e.dedupe_key, ebb.now() AS now
FROM (
    SELECT w.*
    FROM ebb.policy p
    CROSS JOIN LATERAL (
        SELECT e.*, CASE WHEN e.attempts > 0 THEN 'failed' ELSE 'pending' END AS state
        FROM ebb.event e
        WHERE e.sink = p.name AND e.lease_until IS NULL
          AND ($4::timestamptz IS NULL OR e.ready_at >= $4 AND (e.ready_at, e.id) > ($4, $5::uuid))
          AND ($2::text IS NULL OR CASE WHEN e.attempts > 0 THEN 'failed' ELSE 'pending' END = $2)
          AND ($3::interval IS NULL OR e.due_at < ebb.now() - $3)
        ORDER BY e.ready_at, e.id
        LIMIT $6
    ) AS w
    WHERE p.kind = 'sink' AND ($1::text IS NULL OR p.name = $1)
    UNION ALL
    SELECT l.*
    FROM (
        SELECT e.*, CASE WHEN e.lease_until > clock_timestamp() THEN 'running' WHEN e.attempts > 0 THEN 'failed' ELSE 'pending' END AS state
        FROM ebb.event e
        WHERE e.lease_until IS NOT NULL AND ($1::text IS NULL OR e.sink = $1)
          AND ($4::timestamptz IS NULL OR (e.ready_at, e.id) > ($4, $5::uuid))
          AND ($3::interval IS NULL OR e.due_at < ebb.now() - $3)
    ) AS l
    WHERE $2::text IS NULL OR l.state = $2
) AS e
ORDER BY e.ready_at, e.id
LIMIT $6
