-- Deletions of these subjects ($2) of a policy ($1) that are open or claimed; whether they may go is looked at under the locks.
-- Index: deletion_open. Lock: FOR UPDATE SKIP LOCKED, so a restore or a hold under way is passed by.
SELECT d.id, d.subject_id, d.due_at
FROM ebb.deletion d
WHERE d.policy = $1 AND d.subject_id = ANY ($2) AND d.state IN ('pending', 'warned', 'erasing')
ORDER BY d.due_at, d.id
FOR UPDATE OF d SKIP LOCKED
