-- Claims due events for this node: $1 sinks, $2 how many of each, oldest first, $3 how many of what became due within the
-- last five seconds, $4 the floor of each (what lies below was claimed a moment ago: dead tuples are not walked again),
-- $5 the lease of each, $6 the node. Expects event_ready. Locks rows FOR UPDATE SKIP LOCKED, so that two nodes never wait
-- for each other; a token that only grows fences whoever held an event before.
WITH wish AS (
    SELECT * FROM unnest($1::text[], $2::int4[], $3::int4[], $4::timestamptz[], $5::interval[]) AS w (sink, oldest, fresh, floor, lease)
),
due AS MATERIALIZED (
    SELECT e.place, w.lease
    FROM wish w
    CROSS JOIN LATERAL (
        SELECT e.ctid AS place FROM ebb.event e
        WHERE e.sink = w.sink AND e.lease_until IS NULL AND e.ready_at >= w.floor AND e.ready_at <= ebb.now()
        ORDER BY e.ready_at LIMIT w.oldest
        FOR UPDATE SKIP LOCKED
    ) AS e
    UNION ALL
    SELECT e.place, w.lease
    FROM wish w
    CROSS JOIN LATERAL (
        SELECT e.ctid AS place FROM ebb.event e
        WHERE e.sink = w.sink AND e.lease_until IS NULL AND e.ready_at > ebb.now() - interval '5 seconds' AND e.ready_at <= ebb.now()
        ORDER BY e.ready_at LIMIT w.fresh
        FOR UPDATE SKIP LOCKED
    ) AS e
    WHERE w.fresh > 0
)
UPDATE ebb.event e
SET lease_until = clock_timestamp() + (SELECT max(w.lease) FROM wish w WHERE w.sink = e.sink),
    token = e.token + 1, attempts = e.attempts + 1, node = $6
WHERE e.ctid = ANY (ARRAY(SELECT place FROM due)) AND e.lease_until IS NULL
RETURNING e.id, COALESCE(e.recurring, e.id) AS event, e.sink, e.due_at, e.ready_at, e.token, e.attempts,
          COALESCE(e.due_at + e.max_late < ebb.now(), false) AS too_late, e.body, ebb.now() AS now
