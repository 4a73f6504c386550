-- How many deletions of a policy ($1) are due and would go, and how many stay because their subjects are on hold; one that waits for its
-- warning is not due. Index: deletion_due, warning_pkey, hold_active; read only.
SELECT count(*) FILTER (WHERE h.id IS NULL), count(*) FILTER (WHERE h.id IS NOT NULL)
FROM ebb.deletion d
JOIN ebb.retain r ON r.policy = d.policy
LEFT JOIN ebb.hold h ON h.policy = d.policy AND h.subject_id = d.subject_id AND h.lifted_at IS NULL
                    AND (h.until IS NULL OR h.until > ebb.now())
WHERE d.policy = $1 AND d.state IN ('pending', 'warned') AND d.due_at <= ebb.now()
  AND (r.warn_before = '{}' OR d.expedited
       OR EXISTS (SELECT FROM ebb.warning w WHERE w.deletion = d.id AND w.step = 0
                  AND (ebb.later(w.accepted_at, w.before, r.zone) <= ebb.now() OR w.failed_at IS NOT NULL AND r.proceed)))
