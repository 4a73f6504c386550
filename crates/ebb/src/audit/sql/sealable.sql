-- Takes the horizon and the records it allows in one statement, so from one snapshot: with a newer horizon, what
-- committed in between would be passed by. Below xmin nothing runs any more, in no database of the cluster and not as
-- a prepared transaction either. A visible xid at or beyond xmax is of another cluster (a restored dump), so settled.
-- Index: audit_pending_order for both ranges, then audit_pkey for at most $1 records. Lock: none.
WITH horizon AS MATERIALIZED (
    SELECT pg_snapshot_xmin(snapshot) AS xmin, pg_snapshot_xmax(snapshot) AS xmax
    FROM pg_current_snapshot() AS snapshot
),
chosen AS MATERIALIZED (
    SELECT * FROM (
        (SELECT record, xid FROM ebb.audit_pending WHERE xid < (SELECT xmin FROM horizon) ORDER BY xid, record LIMIT $1)
        UNION ALL
        (SELECT record, xid FROM ebb.audit_pending WHERE xid >= (SELECT xmax FROM horizon) ORDER BY xid, record LIMIT $1)
    ) AS settled
    ORDER BY xid, record
    LIMIT $1
)
SELECT a.id, a.xid::text AS xid, a.at, a.action, a.policy, a.policy_version, a.relation, a.rows, a.cutoff, a.due_from,
       a.due_to, a.run, a.node, a.by_name, a.session_role, a.subject, a.details::text AS details
FROM chosen JOIN ebb.audit AS a ON a.id = chosen.record
ORDER BY a.xid, a.id
