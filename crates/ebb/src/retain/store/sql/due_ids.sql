-- Due subjects of a policy ($1), at most $2; who waits for a warning or is on hold is not. Index: deletion_due, warning_pkey; read only.
SELECT d.subject_id FROM ebb.deletion d JOIN ebb.retain r ON r.policy = d.policy
WHERE d.policy = $1 AND d.state IN ('pending', 'warned') AND d.due_at <= ebb.now()
  AND (r.warn_before = '{}' OR d.expedited
       OR EXISTS (SELECT FROM ebb.warning w WHERE w.deletion = d.id AND w.step = 0
                  AND (ebb.later(w.accepted_at, w.before, r.zone) <= ebb.now() OR w.failed_at IS NOT NULL AND r.proceed)))
  AND NOT EXISTS (SELECT FROM ebb.hold h WHERE h.policy = d.policy AND h.subject_id = d.subject_id AND h.lifted_at IS NULL
                  AND (h.until IS NULL OR h.until > ebb.now()))
ORDER BY d.due_at, d.id LIMIT $2
