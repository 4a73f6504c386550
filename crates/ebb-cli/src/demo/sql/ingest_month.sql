-- How the server counts the rows of the month before last.
EXPLAIN (ANALYZE, BUFFERS, COSTS OFF, TIMING OFF, SUMMARY OFF, FORMAT JSON)
SELECT count(*) FROM public.ingest
WHERE created_at >= date_trunc('month', ebb.now()) - interval '2 months' AND created_at < date_trunc('month', ebb.now()) - interval '1 month'
