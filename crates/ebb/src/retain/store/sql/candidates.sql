-- The next due deletions of a policy ($1) that were open at the start of the run ($5), after a place ($2, $3) in their order, at most
-- $4; those that wait for their warning are left to the chore that warns, unless there is nobody any more whom it could warn ($6).
-- Index: deletion_due, warning_pkey. Lock: FOR UPDATE SKIP LOCKED, so a restore or a hold under way
-- is passed by.
SELECT d.id, d.subject_id, d.due_at
FROM ebb.deletion d
JOIN ebb.retain r ON r.policy = d.policy
WHERE d.policy = $1 AND d.state IN ('pending', 'warned') AND d.due_at <= ebb.now()
  AND d.opened_at <= $5
  AND (d.next_try_at IS NULL OR d.next_try_at <= ebb.now())
  AND (r.warn_before = '{}' OR d.expedited OR d.blocked = $6
       OR EXISTS (SELECT FROM ebb.warning w WHERE w.deletion = d.id AND w.step = 0
                  AND (w.accepted_at IS NOT NULL OR w.failed_at IS NOT NULL AND r.proceed)))
  AND (d.due_at, d.id) > (COALESCE($2, '-infinity'::timestamptz), COALESCE($3, '00000000-0000-0000-0000-000000000000'::uuid))
ORDER BY d.due_at, d.id
LIMIT $4
FOR UPDATE OF d SKIP LOCKED
