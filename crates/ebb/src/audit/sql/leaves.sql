-- What a block lists, in its order, each with the record it names where that still exists.
-- Index: audit_leaf_pkey, audit_pkey. Lock: none.
SELECT l.position, l.record, l.hash, a.id, a.xid::text AS xid, a.at, a.action, a.policy, a.policy_version, a.relation, a.rows, a.cutoff, a.due_from,
       a.due_to, a.run, a.node, a.by_name, a.session_role, a.subject, a.details::text AS details
FROM ebb.audit_leaf AS l LEFT JOIN ebb.audit AS a ON a.id = l.record
WHERE l.block = $1
ORDER BY l.position
