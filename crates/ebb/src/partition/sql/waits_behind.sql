-- For whom a session ($1) waits, whatever for: the oldest of them. Read only.
SELECT a.pid, COALESCE(a.application_name, '') AS application_name, left(a.query, 80) AS query,
       COALESCE(extract(epoch FROM pg_catalog.clock_timestamp() - a.xact_start), 0)::float8 AS seconds
FROM unnest(pg_catalog.pg_blocking_pids($1)) AS b (pid)
JOIN pg_catalog.pg_stat_activity a ON a.pid = b.pid
ORDER BY a.xact_start
LIMIT 1
