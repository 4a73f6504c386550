-- Keeps how long runs of a node rested since the last time: $1 reasons, $2 seconds. A new row each; no index is needed.
INSERT INTO ebb.sample (metric, labels, value)
SELECT 'throttle_seconds', jsonb_build_object('reason', r.reason), r.seconds
FROM unnest($1::text[], $2::float8[]) AS r (reason, seconds)
