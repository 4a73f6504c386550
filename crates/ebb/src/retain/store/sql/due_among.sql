-- Which of these subjects ($2) have a deletion of a policy ($1) that is due, also by today's terms, which a due time may not follow yet;
-- one that waits for its warning is not. Index: deletion_open, warning_pkey; read only.
SELECT d.subject_id FROM ebb.deletion d JOIN ebb.retain r ON r.policy = d.policy
WHERE d.policy = $1 AND d.subject_id = ANY ($2) AND d.state IN ('pending', 'warned') AND d.due_at <= ebb.now()
  AND ebb.retained_until(d.policy, d.tenant, d.deleted_at, d.expedited) <= ebb.now()
  AND (r.warn_before = '{}' OR d.expedited
       OR EXISTS (SELECT FROM ebb.warning w WHERE w.deletion = d.id AND w.step = 0
                  AND (ebb.later(w.accepted_at, w.before, r.zone) <= ebb.now() OR w.failed_at IS NOT NULL AND r.proceed)))
