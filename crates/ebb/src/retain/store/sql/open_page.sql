-- Open deletions of a policy ($1) by subject after $2, at most $3: to find those that the application took back; whether each was
-- opened since $4, and whether its row was gone when that was last looked at ($5). Index: deletion_open, in its own order; read only.
SELECT d.id, d.subject_id, d.due_at, d.tenant, d.opened_at > $4 AS since,
       d.blocked IS NOT DISTINCT FROM $5 AS gone
FROM ebb.deletion d
WHERE d.policy = $1 AND d.state IN ('pending', 'warned', 'failed') AND ($2::text IS NULL OR d.subject_id > $2)
ORDER BY d.policy, d.subject_id
LIMIT $3
