-- Who keeps old row versions alive for more than ten minutes: sessions, prepared transactions, slots. A role without
-- pg_read_all_stats sees only its own sessions. Read only.
SELECT format('process %s (%s, %s)', pid, COALESCE(NULLIF(application_name, ''), 'no name'), state) AS who,
       extract(epoch FROM clock_timestamp() - xact_start)::float8 AS seconds,
       format('SELECT pg_terminate_backend(%s)', pid) AS fix
FROM pg_stat_activity
WHERE pid <> pg_backend_pid() AND (backend_xmin IS NOT NULL OR backend_xid IS NOT NULL)
  AND backend_type = 'client backend' AND xact_start < clock_timestamp() - interval '10 minutes'
UNION ALL
SELECT format('the prepared transaction %L', gid), extract(epoch FROM clock_timestamp() - prepared)::float8,
       format('ROLLBACK PREPARED %L', gid)
FROM pg_prepared_xacts
WHERE prepared < clock_timestamp() - interval '10 minutes'
UNION ALL
SELECT format('the replication slot %s, %s transactions behind', slot_name, age(xmin)), NULL,
       format('SELECT pg_drop_replication_slot(%L)', slot_name)
FROM pg_replication_slots
WHERE xmin IS NOT NULL AND NOT active AND age(xmin) > 100000
ORDER BY 2 DESC NULLS LAST
LIMIT 5
