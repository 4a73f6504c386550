-- What a node looks at every second: a fingerprint that changes with every committed change of a policy (a sequence
-- would move before its transaction commits), the time, who else is alive ($1: how long ago still counts), what is
-- paused, how far the server's WAL has come. Expects node_seen_at; policies are few. Read only.
SELECT (SELECT COALESCE(hashtextextended(string_agg(kind || '/' || name || '/' || version, ',' ORDER BY kind, name), 0), 0)
        FROM ebb.policy) AS change,
       ebb.now() AS now,
       (SELECT count(*) FROM ebb.node WHERE seen_at > clock_timestamp() - $1::interval) AS nodes,
       ARRAY(SELECT name FROM ebb.pause ORDER BY name) AS paused,
       pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0')::int8 AS wal_at
