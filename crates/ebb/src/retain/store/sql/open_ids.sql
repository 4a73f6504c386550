-- Subjects of a policy ($1) with an open deletion, the soonest due first, at most $2. Index: deletion_due; read only.
SELECT d.subject_id FROM ebb.deletion d
WHERE d.policy = $1 AND d.state IN ('pending', 'warned')
ORDER BY d.due_at LIMIT $2
