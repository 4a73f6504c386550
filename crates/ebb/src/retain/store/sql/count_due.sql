-- How many deletions of a policy ($1) are due; one that waits for its warning is not. Index: deletion_due, warning_pkey; read only.
SELECT count(*) FROM ebb.deletion d JOIN ebb.retain r ON r.policy = d.policy
WHERE d.policy = $1 AND d.state IN ('pending', 'warned') AND d.due_at <= ebb.now()
  AND (r.warn_before = '{}' OR d.expedited
       OR EXISTS (SELECT FROM ebb.warning w WHERE w.deletion = d.id AND w.step = 0
                  AND (ebb.later(w.accepted_at, w.before, r.zone) <= ebb.now() OR w.failed_at IS NOT NULL AND r.proceed)))
