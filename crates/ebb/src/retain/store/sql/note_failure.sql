-- An attempt at a subject ($1) failed ($2): again after a while that doubles, and after $3 attempts only when somebody
-- asks. Index: deletion_pkey. Lock: the row, held already. A claimed subject stays claimed, whatever happens.
UPDATE ebb.deletion
SET attempts = attempts + 1, error = $2,
    state = CASE WHEN attempts + 1 >= $3 AND state <> 'erasing' THEN 'failed' ELSE state END,
    next_try_at = ebb.now() + make_interval(secs => 60 * power(2, least(attempts, 10)))
WHERE id = $1
RETURNING state = 'failed'
