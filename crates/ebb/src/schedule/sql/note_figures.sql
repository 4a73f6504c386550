-- Keeps figures of events: $1 metrics, $2 sinks, $3 values. A new row each; no index is needed.
INSERT INTO ebb.sample (metric, labels, value)
SELECT f.metric, jsonb_build_object('sink', f.sink), f.value
FROM unnest($1::text[], $2::text[], $3::float8[]) AS f (metric, sink, value)
