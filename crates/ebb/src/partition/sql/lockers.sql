-- Who holds or waits for locks on any of these tables ($1), or on one that they refer to, for longest: for the message when
-- Ebb gives way. Read only.
SELECT a.pid, COALESCE(a.application_name, '') AS application_name, left(a.query, 80) AS query,
       extract(epoch FROM clock_timestamp() - a.xact_start)::float8 AS seconds
FROM pg_catalog.pg_locks l
JOIN pg_catalog.pg_stat_activity a ON a.pid = l.pid
WHERE l.locktype = 'relation' AND a.pid <> pg_backend_pid() AND a.xact_start IS NOT NULL
  AND l.relation IN (SELECT x::oid FROM unnest($1::int8[]) x
                     UNION SELECT k.confrelid FROM pg_catalog.pg_constraint k WHERE k.contype = 'f' AND k.conrelid = ANY (SELECT x::oid FROM unnest($1::int8[]) x))
ORDER BY a.xact_start
LIMIT 1
