-- Every unit with its lease and its last run. Expects run_unit and run_pkey for the last run. Read only.
SELECT u.unit, u.chore, u.policy, u.leaf, u.next_at, u.triggered, u.failures, u.last_success_at, u.shape, u.throttle,
       u.vacuum, u.pending, u.oldest_due, u.counted_at,
       CASE WHEN l.expires_at > clock_timestamp() THEN l.node END AS held_by,
       r.run, r.status, r.rows, r.batches, r.skipped, r.failed, r.error, r.started_at, r.finished_at, r.seconds, r.rows_per_second,
       r.run IS NOT NULL AND r.status = 'running' AND COALESCE(l.expires_at, '-infinity') <= clock_timestamp() AS orphaned
FROM ebb.unit u
LEFT JOIN ebb.lease l ON l.unit = u.unit
LEFT JOIN LATERAL (SELECT x.id FROM ebb.run x WHERE x.unit = u.unit ORDER BY x.id DESC LIMIT 1) AS latest ON true
-- The limit keeps the two apart: joined, every run would be read for every unit.
LEFT JOIN LATERAL (SELECT v.* FROM ebb.v_runs v WHERE v.run = latest.id LIMIT 1) AS r ON true
ORDER BY u.policy, u.chore, u.leaf
