-- Deletions of a policy ($1) after $2 whose warnings a sink has accepted and whose due time does not know it yet, at most $3.
-- Index: warning_unsettled, deletion_pkey. Lock: the deletions FOR UPDATE SKIP LOCKED.
SELECT d.id, CASE WHEN d.state IN ('pending', 'warned') THEN d.subject_id END AS subject_id
FROM ebb.deletion d
WHERE d.id IN (SELECT w.deletion FROM ebb.warning w
               WHERE w.policy = $1 AND w.accepted_at IS NOT NULL AND NOT w.settled
                 AND w.deletion > COALESCE($2, '00000000-0000-0000-0000-000000000000'::uuid)
               ORDER BY w.deletion LIMIT $3)
ORDER BY d.id
FOR UPDATE SKIP LOCKED
