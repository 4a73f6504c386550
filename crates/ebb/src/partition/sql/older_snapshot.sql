-- The longest transaction whose snapshot is older than another transaction ($1), in words. Read only.
SELECT pg_catalog.format('pid %s has been in a transaction for %s s, and sees rows where they were: %s', a.pid,
                         round(extract(epoch FROM clock_timestamp() - a.xact_start)), left(a.query, 80))
FROM pg_catalog.pg_stat_activity a
WHERE a.datname = current_database() AND a.backend_type = 'client backend' AND a.pid <> pg_backend_pid()
  AND age(a.backend_xmin) >= age($1::xid8::xid)
ORDER BY a.xact_start
LIMIT 1
