-- The warnings of a subject ($2 of policy $1) that could not be delivered are made anew. Index: deletion_open, warning_pkey. Lock: the
-- deletion, then its warnings. Returns its deletion.
SELECT w.deletion
FROM (SELECT d.id AS deletion FROM ebb.deletion d WHERE d.policy = $1 AND d.subject_id = $2 AND d.state IN ('pending', 'warned')) AS d
JOIN ebb.warning w ON w.deletion = d.deletion AND w.failed_at IS NOT NULL AND w.accepted_at IS NULL
WHERE ebb.warn_again(w.event)
LIMIT 1
