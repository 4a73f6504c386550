-- Lists runs, newest first: $1 policy, $2 status, $3 at most, $4 the run after which the page starts.
-- Index: run_pkey; where a policy is named, its units are few and run_unit leads to them. Read only.
SELECT v.run, v.policy, v.policy_version, v.chore, v.table_name, v.node, v.status, v.rows, v.batches, v.skipped, v.due,
       v.error, v.started_at, v.finished_at, v.seconds, v.rows_per_second
FROM ebb.v_runs v
WHERE ($1::text IS NULL OR v.policy = $1)
  AND ($2::text IS NULL OR v.status = $2)
  AND ($4::bigint IS NULL OR v.run < $4)
ORDER BY v.run DESC
LIMIT $3
