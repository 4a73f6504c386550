-- What runs did hour by hour, over the last $2 hours, of the policy $1 or of all but Ebb's own. Index: run_started_at.
-- Read only.
SELECT h.at, COALESCE(sum(r.rows), 0)::bigint AS rows,
       count(*) FILTER (WHERE r.status IN ('success', 'observed')) AS succeeded,
       count(*) FILTER (WHERE r.status IN ('failed', 'abandoned')) AS failed
FROM generate_series(date_trunc('hour', clock_timestamp()) - make_interval(hours => $2 - 1),
                     date_trunc('hour', clock_timestamp()), interval '1 hour') AS h (at)
LEFT JOIN ebb.run r ON r.started_at >= h.at AND r.started_at < h.at + interval '1 hour'
    AND CASE WHEN $1::text IS NULL THEN r.policy <> 'keep' ELSE r.policy = $1 END
GROUP BY h.at
ORDER BY h.at
