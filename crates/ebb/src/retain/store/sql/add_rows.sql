-- Counts what a part of a large subject ($1) took ($2) and what it only unlinked ($3), by table; $4 and $5 (with the
-- edges for which they did) are the transactions that changed rows which do not say so by their values. Index: deletion_pkey.
-- Lock: the row, held already.
UPDATE ebb.deletion
SET rows = COALESCE(rows, 0) + (SELECT COALESCE(sum(value::bigint), 0) FROM jsonb_each_text($2)), attempts = 0, error = NULL, blocked = NULL,
    parts = ebb.add_counts(parts, $2), unlinked = ebb.add_counts(unlinked, $3),
    writers = CASE WHEN written_in = ebb.home() THEN writers ELSE '{}' END || $4,
    partly = CASE WHEN written_in = ebb.home() THEN partly ELSE '{}' END || $5, written_in = ebb.home()
WHERE id = $1
