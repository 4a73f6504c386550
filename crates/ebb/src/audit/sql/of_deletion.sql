-- What is on record about a deletion ($1), newest first, at most $2. Index: audit_deletion (the sum keeps the server from
-- reading all records by their id instead). Lock: none.
SELECT a.id, a.xid::text AS xid, a.at, a.action, a.policy, a.policy_version, a.relation, a.rows, a.cutoff, a.due_from,
       a.due_to, a.run, a.node, a.by_name, a.session_role, a.subject, a.details::text AS details
FROM ebb.audit AS a
WHERE a.details ->> 'deletion' = $1
ORDER BY a.id + 0 DESC
LIMIT $2
