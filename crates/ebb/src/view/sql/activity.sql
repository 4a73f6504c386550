-- The runs that go on, and those that ended since $1, or just now when it is null. Those that go on are the last of their unit, so the units lead to
-- them. Index: run_unit, run_pkey. Read only.
SELECT v.run, v.policy, v.policy_version, v.chore, v.table_name, v.node, v.status, v.rows, v.batches, v.skipped, v.due,
       v.error, v.started_at, v.finished_at, v.seconds, v.rows_per_second
FROM ebb.unit u
CROSS JOIN LATERAL (SELECT r.id FROM ebb.run r WHERE r.unit = u.unit ORDER BY r.id DESC LIMIT 1) last
CROSS JOIN LATERAL (SELECT w.* FROM ebb.v_runs w WHERE w.run = last.id LIMIT 1) AS v
WHERE v.status = 'running' OR v.finished_at >= COALESCE($1, clock_timestamp() - interval '3 seconds')
ORDER BY v.run
