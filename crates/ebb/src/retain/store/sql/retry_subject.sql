-- A failed subject ($2 of policy $1) is tried again at once. Index: deletion_open. Returns its deletion.
UPDATE ebb.deletion
SET state = CASE state WHEN 'failed' THEN 'pending' ELSE state END, attempts = 0, next_try_at = NULL
WHERE policy = $1 AND subject_id = $2 AND state IN ('pending', 'warned', 'erasing', 'failed') AND (state = 'failed' OR attempts > 0)
RETURNING id
