-- How many open deletions of a policy ($1) are due now, and how many would be if its grace were $2, its floor $3.
-- Index: deletion_due; read only.
SELECT count(*) FILTER (WHERE d.due_at <= ebb.now()),
       count(*) FILTER (WHERE GREATEST(ebb.later(d.deleted_at, $3, r.zone),
                                       CASE WHEN NOT d.expedited THEN ebb.later(d.deleted_at, COALESCE(o.retention, $2), r.zone) END,
                                       d.not_before) <= ebb.now() AND o.enabled IS NOT FALSE)
FROM ebb.deletion d
JOIN ebb.retain r ON r.policy = d.policy
LEFT JOIN ebb.tenant_override o ON o.policy = r.policy AND o.tenant = d.tenant AND r.tenant_override
WHERE d.policy = $1 AND d.state IN ('pending', 'warned')
