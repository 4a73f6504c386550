-- Behind whom a server process ($1) waits for a lock. Read only.
SELECT 'waits behind pid ' || b.pid || COALESCE(': ' || left(a.query, 60), '')
FROM unnest(pg_catalog.pg_blocking_pids($1)) AS b (pid)
LEFT JOIN pg_catalog.pg_stat_activity a ON a.pid = b.pid
LIMIT 1
