-- When there is something to do next: the first event of these sinks ($1), the first recurring event to fire, the first
-- lease to run out, and the time by both clocks. Expects event_ready and recurring_next_at. Read only.
SELECT n.ready_at,
       (SELECT r.next_at FROM ebb.recurring r
        WHERE r.next_at IS NOT NULL AND NOT r.sink = ANY ($2::text[]) AND NOT COALESCE(r.policy = ANY ($2::text[]), false)
        ORDER BY r.next_at LIMIT 1) AS fires_at,
       extract(epoch FROM l.lease_until - clock_timestamp())::float8 AS lease_runs_out_in,
       ebb.clock() AS now
FROM (SELECT min(n.ready_at) AS ready_at
      FROM unnest($1::text[]) AS s (sink)
      CROSS JOIN LATERAL (
          SELECT e.ready_at FROM ebb.event e
          WHERE e.sink = s.sink AND e.lease_until IS NULL ORDER BY e.ready_at LIMIT 1
      ) AS n) AS n,
     -- Where nothing is ready, what has been due is under way.
     LATERAL (SELECT min(e.lease_until) AS lease_until
      FROM unnest($1::text[]) AS s (sink)
      JOIN ebb.event e ON e.sink = s.sink AND e.ready_at < LEAST(n.ready_at, ebb.now())) AS l
