-- Who holds the horizon back, where a record has waited behind it for more than a minute: a process or a prepared
-- transaction, in any database. pg_locks shows everyone's transactions to every role; pg_stat_activity may not.
-- Index: audit_pending_order, audit_pkey. Lock: none on tables; reading pg_locks stops the lock manager for an instant.
WITH horizon AS MATERIALIZED (
    SELECT pg_snapshot_xmin(snapshot) AS xmin, pg_snapshot_xmax(snapshot) AS xmax
    FROM pg_current_snapshot() AS snapshot
),
stuck AS MATERIALIZED (
    SELECT record
    FROM ebb.audit_pending
    WHERE xid >= (SELECT xmin FROM horizon) AND xid < (SELECT xmax FROM horizon)
    ORDER BY xid, record
    LIMIT 1
)
SELECT lock.pid,
       prepared.gid,
       horizon.xmin::text AS xid,
       coalesce(activity.datname::text, prepared.database::text) AS database,
       coalesce(activity.usename::text, prepared.owner::text) AS role,
       activity.application_name AS application,
       coalesce(activity.xact_start, prepared.prepared) AS since,
       a.id AS record,
       a.at AS record_at
FROM horizon
CROSS JOIN stuck
JOIN ebb.audit AS a ON a.id = stuck.record AND a.at < clock_timestamp() - interval '1 minute'
JOIN pg_locks AS lock ON lock.locktype = 'transactionid' AND lock.transactionid = horizon.xmin::xid
                     AND lock.mode = 'ExclusiveLock' AND lock.granted
LEFT JOIN pg_stat_activity AS activity ON activity.pid = lock.pid
LEFT JOIN pg_prepared_xacts AS prepared ON lock.pid IS NULL AND prepared.transaction = horizon.xmin::xid
WHERE lock.pid IS DISTINCT FROM pg_backend_pid()
LIMIT 1
