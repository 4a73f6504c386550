-- How long runs rested, hour by hour over the last $1 hours, by reason. Index: sample_series. Read only.
SELECT date_trunc('hour', s.at) AS at, COALESCE(s.labels ->> 'reason', '') AS reason, sum(s.value)::float8 AS seconds
FROM ebb.sample s
WHERE s.metric = 'throttle_seconds' AND s.labels ->> 'policy' IS NULL
  AND s.at >= date_trunc('hour', clock_timestamp()) - make_interval(hours => $1 - 1)
GROUP BY 1, 2
ORDER BY 1, 2
