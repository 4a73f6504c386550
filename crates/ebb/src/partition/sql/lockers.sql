-- Who holds or waits for locks on any of these tables ($1) for longest, for the message when Ebb gives way. Read only.
SELECT a.pid, COALESCE(a.application_name, '') AS application_name, left(a.query, 80) AS query,
       extract(epoch FROM clock_timestamp() - a.xact_start)::float8 AS seconds
FROM pg_catalog.pg_locks l
JOIN pg_catalog.pg_stat_activity a ON a.pid = l.pid
WHERE l.locktype = 'relation' AND l.relation = ANY (SELECT x::oid FROM unnest($1::int8[]) x) AND a.pid <> pg_backend_pid()
  AND a.xact_start IS NOT NULL
ORDER BY a.xact_start
LIMIT 1
