-- Writes down how the units stand, at most once a minute whichever node does it: a series for each, and one without labels of all
-- together, which is what a page over everything reads. rows_deleted_total counts the runs that are kept; rows_per_second is its
-- growth since the sample before. Expects sample_at, sample_series and run_unit.
WITH free AS MATERIALIZED (
    SELECT pg_try_advisory_xact_lock(hashtextextended('ebb.sample', 0)) AS mine
),
standing AS (
    SELECT jsonb_build_object('policy', u.policy, 'table', u.leaf) AS labels, u.policy,
           u.pending,
           CASE WHEN u.pending > 0 AND isfinite(u.oldest_due) THEN
               GREATEST(extract(epoch FROM ebb.now() - u.oldest_due), 0)::float8 END AS oldest,
           (SELECT COALESCE(sum(r.rows), 0) FROM ebb.run r WHERE r.unit = u.unit)::float8 AS total
    FROM ebb.unit u, free
    WHERE u.chore = 'expire' AND u.policy <> 'keep' AND free.mine
      AND NOT EXISTS (SELECT FROM ebb.sample s
                      WHERE s.at > clock_timestamp() - interval '50 seconds' AND s.metric = 'rows_deleted_total')
),
measured AS MATERIALIZED (
    SELECT m.metric, s.labels, m.value
    FROM standing s
    LEFT JOIN LATERAL (
        SELECT b.value, b.at FROM ebb.sample b
        WHERE b.at > clock_timestamp() - interval '10 minutes' AND b.metric = 'rows_deleted_total'
          AND b.labels ->> 'policy' = s.policy AND b.labels = s.labels
        ORDER BY b.at DESC LIMIT 1
    ) AS before ON true
    CROSS JOIN LATERAL (VALUES
        ('records_pending', s.pending::float8),
        ('oldest_pending_seconds', COALESCE(s.oldest, CASE WHEN s.pending = 0 THEN 0 END)),
        ('rows_deleted_total', s.total),
        ('rows_per_second', CASE WHEN before.at IS NOT NULL THEN
            GREATEST(s.total - before.value, 0) / GREATEST(extract(epoch FROM clock_timestamp() - before.at)::float8, 1) END)
    ) AS m (metric, value)
    WHERE m.value IS NOT NULL
)
INSERT INTO ebb.sample (metric, labels, value)
SELECT m.metric, m.labels, m.value FROM measured m
UNION ALL
SELECT m.metric, '{}', CASE m.metric WHEN 'oldest_pending_seconds' THEN max(m.value) ELSE sum(m.value) END
FROM measured m GROUP BY m.metric
