-- Due subjects of a policy ($1), at most $2. Index: deletion_due; read only.
SELECT subject_id FROM ebb.deletion
WHERE policy = $1 AND state IN ('pending', 'warned') AND due_at <= ebb.now()
ORDER BY due_at, id LIMIT $2
