-- The due time of deletions ($1) follows what their warnings promised when they were accepted. Index: warning_pkey, deletion_pkey.
-- Lock: the deletions, held already. Returns those that are open: when each is due, and when it was warned.
WITH known AS (
    UPDATE ebb.warning w SET settled = true
    WHERE w.deletion = ANY ($1) AND w.accepted_at IS NOT NULL AND NOT w.settled
), promised AS (
    SELECT d.id, w.accepted_at, ebb.later(w.accepted_at, w.before, r.zone) AS until
    FROM ebb.deletion d
    JOIN ebb.retain r ON r.policy = d.policy
    JOIN ebb.warning w ON w.deletion = d.id AND w.step = 0 AND w.accepted_at IS NOT NULL
    WHERE d.id = ANY ($1) AND d.state IN ('pending', 'warned') AND NOT d.expedited
)
UPDATE ebb.deletion d
SET not_before = GREATEST(d.not_before, p.until), due_at = GREATEST(d.due_at, p.until), state = 'warned', blocked = NULL
FROM promised p
WHERE d.id = p.id
RETURNING d.id, d.due_at, p.accepted_at
