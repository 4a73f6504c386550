-- How each sink stands: what is due, what is under way among the oldest, what failed and waits, dead letters, the oldest due time; each
-- counted up to $1; and since when its receiver has been dead, where calls are made. Expects event_ready, event_history_dead and event_history_finished_at. Read only.
SELECT s.name AS sink, s.state, due.events AS due, due.oldest AS oldest_due, running.events AS running, dead.events AS dead,
       (SELECT n.ready_at FROM ebb.event n WHERE n.sink = s.name AND n.lease_until IS NULL AND n.ready_at > ebb.now()
        ORDER BY n.ready_at LIMIT 1) AS next_at,
       late.events AS overdue, CASE WHEN s.state = 'active' THEN ebb.dead_since(s.name) END AS dead_since, ebb.now() AS now
FROM (SELECT p.name, CASE WHEN p.stopped IS NOT NULL THEN 'stopped'
                          WHEN EXISTS (SELECT FROM ebb.pause x WHERE x.name IN (p.name, 'events', '*')) THEN 'paused'
                          WHEN NOT p.enabled THEN 'disabled' ELSE 'active' END AS state
      FROM ebb.policy p WHERE p.kind = 'sink') AS s
CROSS JOIN LATERAL (
    SELECT count(*) AS events, min(e.ready_at) AS oldest FROM (
        SELECT e.ready_at FROM ebb.event e WHERE e.sink = s.name AND e.ready_at <= ebb.now()
          AND (e.lease_until IS NULL OR e.lease_until <= clock_timestamp())
        ORDER BY e.ready_at LIMIT $1) AS e) AS due
CROSS JOIN LATERAL (
    SELECT count(*) AS events FROM (
        SELECT FROM ebb.event e WHERE e.sink = s.name AND e.ready_at <= ebb.now() - $2::interval
          AND (e.lease_until IS NULL OR e.lease_until <= clock_timestamp())
        ORDER BY e.ready_at LIMIT 11) AS e) AS late
CROSS JOIN LATERAL (
    SELECT count(*) FILTER (WHERE e.lease_until > clock_timestamp()) AS events FROM (
        SELECT e.lease_until FROM ebb.event e WHERE e.sink = s.name AND e.ready_at <= ebb.now()
        ORDER BY e.ready_at LIMIT $1) AS e) AS running
CROSS JOIN LATERAL (
    SELECT count(*) AS events FROM (SELECT FROM ebb.event_history h WHERE h.sink = s.name AND h.state = 'dead' LIMIT $1) AS h) AS dead
ORDER BY s.name
