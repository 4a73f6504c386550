-- Lists runs, newest first: $1 policy, $2 status, $3 at most, $4 the run after which the page starts.
-- Index: run_pkey, backwards until the page is full. The view is only asked about what is on the page: it tells how long a run has
-- taken so far, so nothing about it can be sorted before all of it is made. Read only.
WITH page AS (
    SELECT r.id FROM ebb.run r
    WHERE ($1::text IS NULL OR r.policy = $1)
      AND ($2::text IS NULL OR r.status = $2)
      AND ($4::bigint IS NULL OR r.id < $4)
    ORDER BY r.id DESC
    LIMIT $3
)
SELECT v.run, v.policy, v.policy_version, v.chore, v.table_name, v.node, v.status, v.rows, v.batches, v.skipped, v.due,
       v.error, v.started_at, v.finished_at, v.seconds, v.rows_per_second
FROM page
CROSS JOIN LATERAL (SELECT w.* FROM ebb.v_runs w WHERE w.run = page.id LIMIT 1) AS v
ORDER BY page.id DESC
