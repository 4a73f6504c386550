-- The runs that go on, and those that ended since $1, or just now when it is null. Those that go on are the last of their unit, so the units lead to
-- them. Index: run_unit, run_started_at. Read only.
SELECT v.run, v.policy, v.policy_version, v.chore, v.table_name, v.node, v.status, v.rows, v.batches, v.skipped, v.due,
       v.error, v.started_at, v.finished_at, v.seconds, v.rows_per_second
FROM ebb.unit u
CROSS JOIN LATERAL (SELECT r.id FROM ebb.run r WHERE r.unit = u.unit ORDER BY r.id DESC LIMIT 1) last
JOIN ebb.v_runs v ON v.run = last.id
WHERE v.status = 'running' OR v.finished_at >= COALESCE($1, clock_timestamp() - interval '3 seconds')
ORDER BY v.run
