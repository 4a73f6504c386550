-- Says why deletions ($1) that looked due wait ($2: why; null: not any more) and when they are due by today's policy ($3, null: as it
-- is). Index: deletion_pkey. Lock: rows that this transaction holds already.
UPDATE ebb.deletion d
SET blocked = w.blocked, due_at = COALESCE(w.due_at, d.due_at)
FROM unnest($1::uuid[], $2::text[], $3::timestamptz[]) AS w (id, blocked, due_at)
WHERE d.id = w.id AND (d.blocked IS DISTINCT FROM w.blocked OR w.due_at IS NOT NULL)
