-- One look at how the server is doing, for a leaf ($1). Read only; a role without pg_read_all_stats sees only its
-- own sessions here, which `ebb doctor` says. A standby that replays nothing reports no lag; the positions tell.
-- A session between two statements is at work, too: of a busy application all may be there at the moment of a look.
SELECT
    (SELECT count(*) FROM pg_stat_activity
      WHERE (state = 'active' OR state_change > clock_timestamp() - interval '100 milliseconds')
        AND backend_type = 'client backend' AND pid <> pg_backend_pid()
        AND application_name NOT LIKE 'ebb/%') AS others,
    (SELECT max(extract(epoch FROM replay_lag))::float8 FROM pg_stat_replication) AS replica_lag_s,
    (SELECT min(pg_wal_lsn_diff(replay_lsn, '0/0'))::int8 FROM pg_stat_replication) AS replayed_to,
    (SELECT max(pg_wal_lsn_diff(pg_current_wal_lsn(), restart_lsn))::int8 FROM pg_replication_slots
      WHERE restart_lsn IS NOT NULL) AS slot_wal_bytes,
    (SELECT count(*) FROM pg_locks l LEFT JOIN pg_stat_activity a USING (pid)
      WHERE NOT l.granted AND l.relation = $1::int8::oid
        AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
        AND COALESCE(a.application_name, '') NOT LIKE 'ebb/%') AS lock_waiters,
    EXISTS (SELECT FROM pg_stat_progress_vacuum WHERE relid = $1::int8::oid) AS vacuuming,
    (pg_stat_get_dead_tuples($1::int8::oid)::float8
       / GREATEST(pg_stat_get_dead_tuples($1::int8::oid) + pg_stat_get_live_tuples($1::int8::oid), 1)) AS dead_share,
    GREATEST((SELECT max(age(backend_xmin)) FROM pg_stat_activity WHERE pid <> pg_backend_pid()),
             (SELECT max(age(xmin)) FROM pg_replication_slots))::int8 AS xmin_age
