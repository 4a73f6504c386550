-- After a change of a policy ($1): open deletions are due when it says now. Index: deletion_due.
UPDATE ebb.deletion d
SET due_at = GREATEST(ebb.retained_until(d.policy, d.tenant, d.deleted_at, d.expedited), d.not_before)
WHERE d.policy = $1 AND d.state IN ('pending', 'warned')
  AND d.due_at IS DISTINCT FROM GREATEST(ebb.retained_until(d.policy, d.tenant, d.deleted_at, d.expedited), d.not_before)
