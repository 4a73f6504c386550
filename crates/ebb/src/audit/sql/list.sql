-- Lists records, newest first; $5 is the id after which the page starts.
-- Index: the primary key, or audit_policy where a policy is named. Lock: none.
SELECT a.id, a.xid::text AS xid, a.at, a.action, a.policy, a.policy_version, a.relation, a.rows, a.cutoff, a.due_from,
       a.due_to, a.run, a.node, a.by_name, a.session_role, a.subject, a.details::text AS details
FROM ebb.audit AS a
WHERE ($1::text IS NULL OR a.policy = $1)
  AND ($2::text IS NULL OR a.action = ANY (string_to_array($2, ',')))
  AND ($3::timestamptz IS NULL OR a.at >= $3)
  AND ($5::bigint IS NULL OR a.id < $5)
ORDER BY a.id DESC
LIMIT $4
