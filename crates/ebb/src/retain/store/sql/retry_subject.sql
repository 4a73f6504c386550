-- A failed subject ($2 of policy $1) is tried again at once. Index: deletion_open. Returns its deletion.
UPDATE ebb.deletion d
SET state = CASE WHEN d.state <> 'failed' THEN d.state
                 WHEN EXISTS (SELECT FROM ebb.warning w WHERE w.deletion = d.id AND w.step = 0) THEN 'warned'
                 ELSE 'pending' END,
    attempts = 0, next_try_at = NULL
WHERE policy = $1 AND subject_id = $2 AND state IN ('pending', 'warned', 'erasing', 'failed') AND (state = 'failed' OR attempts > 0)
RETURNING id
