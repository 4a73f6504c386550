-- Recurring events that were cancelled longer than $1 ago go, and their dedupe keys with them. Expects recurring_cancelled_at.
WITH gone AS (
    DELETE FROM ebb.recurring r WHERE r.cancelled_at < ebb.now() - $1::interval RETURNING r.id, r.sink, r.dedupe_key
)
DELETE FROM ebb.event_key k USING gone g WHERE k.sink = g.sink AND k.key = g.dedupe_key AND k.event = g.id
