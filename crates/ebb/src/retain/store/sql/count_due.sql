-- How many deletions of a policy ($1) are due. Index: deletion_due; read only.
SELECT count(*) FROM ebb.deletion
WHERE policy = $1 AND state IN ('pending', 'warned') AND due_at <= ebb.now()
