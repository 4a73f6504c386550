-- How the server counts the rows from $1 to $2.
EXPLAIN (ANALYZE, BUFFERS, COSTS OFF, TIMING OFF, SUMMARY OFF, FORMAT JSON)
SELECT count(*) FROM public.ingest WHERE created_at >= $1::text::timestamptz AND created_at < $2::text::timestamptz
