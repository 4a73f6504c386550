-- Claims due events for this node: $1 sinks, $2 how many of each, oldest first, $3 how many of what became due within the
-- last five seconds, $4 and $5 the floor of each (what lies up to there was claimed a moment ago: dead tuples are not walked
-- again), $6 the lease of each, $7 how often each tries, $8 the node. An event whose lease ran out is taken over; one that
-- was left behind in its last attempt is given up, and one that was cancelled meanwhile is told apart. Expects event_ready. Locks rows FOR UPDATE SKIP LOCKED, so that two nodes
-- never wait for each other; a token that only grows fences whoever held an event before.
WITH wish AS (
    SELECT * FROM unnest($1::text[], $2::int4[], $3::int4[], $4::timestamptz[], $5::uuid[], $6::interval[], $7::int4[])
             AS w (sink, oldest, fresh, floor_at, floor_id, lease, attempts)
),
due AS MATERIALIZED (
    SELECT e.*
    FROM wish w
    CROSS JOIN LATERAL (
        SELECT e.ctid AS place, e.id, e.lease_until IS NOT NULL AS left_behind,
               e.lease_until IS NOT NULL AND e.attempts >= w.attempts AS given_up
        FROM ebb.event e
        WHERE e.sink = w.sink AND (e.ready_at, e.id) > (w.floor_at, w.floor_id) AND e.ready_at <= ebb.now()
          AND (e.lease_until IS NULL OR e.lease_until <= clock_timestamp())
        ORDER BY e.ready_at, e.id LIMIT w.oldest
        FOR UPDATE SKIP LOCKED
    ) AS e
    UNION ALL
    SELECT e.*
    FROM wish w
    CROSS JOIN LATERAL (
        SELECT e.ctid AS place, e.id, e.lease_until IS NOT NULL AS left_behind,
               e.lease_until IS NOT NULL AND e.attempts >= w.attempts AS given_up
        FROM ebb.event e
        WHERE e.sink = w.sink AND e.ready_at > ebb.now() - interval '5 seconds' AND e.ready_at <= ebb.now()
          AND (e.lease_until IS NULL OR e.lease_until <= clock_timestamp())
        ORDER BY e.ready_at, e.id LIMIT w.fresh
        FOR UPDATE SKIP LOCKED
    ) AS e
    WHERE w.fresh > 0
)
UPDATE ebb.event e
SET lease_until = clock_timestamp() + (SELECT max(w.lease) FROM wish w WHERE w.sink = e.sink),
    token = e.token + 1,
    attempts = CASE WHEN e.id = ANY (ARRAY(SELECT d.id FROM due d WHERE d.given_up)) THEN e.attempts ELSE e.attempts + 1 END,
    error = CASE WHEN e.lease_until IS NULL THEN e.error
                 WHEN e.id = ANY (ARRAY(SELECT d.id FROM due d WHERE d.given_up)) THEN 'node ' || e.node || ' held the last attempt and went away'
                 ELSE 'node ' || e.node || ' held it and went away' END,
    node = $8
WHERE e.ctid = ANY (ARRAY(SELECT d.place FROM due d)) AND (e.lease_until IS NULL OR e.lease_until <= clock_timestamp())
RETURNING e.id, COALESCE(e.recurring, e.id) AS event, e.sink, e.due_at, e.ready_at, e.token, e.attempts,
          COALESCE(e.due_at + e.max_late < ebb.now(), false) AS too_late, e.body, ebb.now() AS now,
          e.subject_policy IS NOT NULL AS of_subject, e.token > 1 AND EXISTS (SELECT FROM ebb.event_cancel c WHERE c.id = e.id) AS cancelled,
          e.id = ANY (ARRAY(SELECT d.id FROM due d WHERE d.left_behind)) AS left_behind,
          CASE WHEN e.id = ANY (ARRAY(SELECT d.id FROM due d WHERE d.given_up)) THEN e.error END AS given_up
