-- Rows a second, by policy, over its last ten runs that removed enough to tell. Expects run_started_at; read only.
SELECT policy, (sum(rows) / GREATEST(sum(extract(epoch FROM finished_at - started_at)), 0.001))::float8
FROM (
    SELECT policy, rows, started_at, finished_at, row_number() OVER (PARTITION BY policy ORDER BY id DESC) AS place
    FROM ebb.run
    WHERE chore = 'expire' AND rows >= 1000 AND finished_at IS NOT NULL
      AND started_at > clock_timestamp() - interval '30 days'
) AS last
WHERE place <= 10
GROUP BY policy
