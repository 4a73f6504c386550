-- A metric $1 over the last $3 hours in $4 steps, summed over labels within a minute, averaged within a step; of the
-- policy $2, or the series of all together. Index: sample_series. Read only.
WITH minutes AS (
    SELECT date_bin(interval '1 minute', s.at, timestamptz 'epoch') AS at, sum(s.value) AS value
    FROM ebb.sample s
    WHERE s.at > clock_timestamp() - make_interval(hours => $3) AND s.metric = $1
      AND ($2::text IS NULL AND s.labels ->> 'policy' IS NULL OR s.labels ->> 'policy' = $2)
    GROUP BY 1
)
SELECT date_bin(make_interval(secs => $3 * 3600.0 / $4), m.at, timestamptz 'epoch') AS at, avg(m.value)::float8 AS value
FROM minutes m
GROUP BY 1
ORDER BY 1
