-- Open deletions of a policy ($1) by id after $2, at most $3: to find those that the application took back.
-- Index: deletion_pkey; read only.
SELECT d.id, d.subject_id, d.due_at
FROM ebb.deletion d
WHERE d.policy = $1 AND d.state IN ('pending', 'warned', 'failed') AND d.id > COALESCE($2, '00000000-0000-0000-0000-000000000000'::uuid)
ORDER BY d.id
LIMIT $3
