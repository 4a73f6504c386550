-- Rows a second that become due, by policy: what successful runs of the last week removed, without the first run of each
-- unit, which may have met an old backlog. Expects run_started_at; read only.
SELECT policy,
       count(*) AS runs,
       extract(epoch FROM max(started_at) - min(started_at))::float8 AS seconds,
       (COALESCE(sum(rows) FILTER (WHERE place > 1), 0)
         / GREATEST(extract(epoch FROM max(started_at) - min(started_at)), 1))::float8 AS per_second
FROM (
    SELECT policy, rows, started_at, row_number() OVER (PARTITION BY unit ORDER BY id) AS place
    FROM ebb.run
    WHERE chore = 'expire' AND status = 'success' AND started_at > clock_timestamp() - interval '7 days'
) AS runs
GROUP BY policy
