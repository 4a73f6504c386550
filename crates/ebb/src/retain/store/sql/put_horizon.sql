-- Lets links ($1) wait for whoever was under way when they were written, by a transaction of its own within this one: its number was
-- the next one then, and every other that had one has a lower one. What a snapshot says is behind by those that have not ended
-- yet. Index: late_link_pkey. Lock: rows of this transaction.
UPDATE ebb.late_link l
SET horizon = t.own + (l.xmin::text::bigint - t.own % 4294967296 + 4294967296) % 4294967296
FROM (SELECT pg_current_xact_id()::text::bigint AS own) AS t
WHERE l.id = ANY ($1)
