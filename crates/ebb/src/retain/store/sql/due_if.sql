-- How many open deletions of a policy ($1) are due now, and how many would be if its grace were $2, its floor $3, it warned ($4)
-- or went on after a warning that could not be delivered ($5), tenants had terms of their own ($6), and its zone were $7.
-- Index: deletion_due, warning_pkey; read only.
SELECT count(*) FILTER (WHERE d.due_at <= ebb.now() AND (d.expedited OR ebb.later(w.accepted_at, w.before, r.zone) <= ebb.now() IS NOT FALSE)
                          AND (r.warn_before = '{}' OR d.expedited OR w.accepted_at IS NOT NULL OR w.failed_at IS NOT NULL AND r.proceed)),
       count(*) FILTER (WHERE GREATEST(ebb.later(d.deleted_at, $3, $7),
                                       CASE WHEN NOT d.expedited THEN ebb.later(d.deleted_at, COALESCE(o.retention, $2), $7) END,
                                       CASE WHEN NOT d.expedited THEN ebb.later(w.accepted_at, w.before, $7) END,
                                       d.not_before) <= ebb.now() AND o.enabled IS NOT FALSE
                          AND (NOT $4 OR d.expedited OR w.accepted_at IS NOT NULL OR w.failed_at IS NOT NULL AND $5))
FROM ebb.deletion d
JOIN ebb.retain r ON r.policy = d.policy
LEFT JOIN ebb.tenant_override o ON o.policy = r.policy AND o.tenant = d.tenant AND $6
LEFT JOIN ebb.warning w ON w.deletion = d.id AND w.step = 0
WHERE d.policy = $1 AND d.state IN ('pending', 'warned')
