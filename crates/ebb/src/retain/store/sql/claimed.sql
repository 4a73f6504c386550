-- The next claimed subjects of a policy ($1) after $2 that no hold stops, at most $3. Index: deletion_claimed. Lock: FOR UPDATE SKIP LOCKED.
SELECT d.id, d.subject_id, d.due_at
FROM ebb.deletion d
WHERE d.policy = $1 AND d.state = 'erasing' AND d.id > COALESCE($2, '00000000-0000-0000-0000-000000000000'::uuid)
  AND (d.next_try_at IS NULL OR d.next_try_at <= ebb.now())
  AND NOT EXISTS (SELECT FROM ebb.hold h WHERE h.policy = d.policy AND h.subject_id = d.subject_id
                  AND h.lifted_at IS NULL AND (h.until IS NULL OR h.until > ebb.now()))
ORDER BY d.id
LIMIT $3
FOR UPDATE OF d SKIP LOCKED
