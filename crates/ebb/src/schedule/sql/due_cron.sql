-- Recurring events by cron that are due: $1 how many, $2 what is paused. Expects recurring_next_at. Locks rows FOR UPDATE SKIP
-- LOCKED until they have been advanced in the same transaction.
SELECT r.id, r.sink, r.cron, r.zone, r.missed, r.next_at, ebb.now() AS now
FROM ebb.recurring r
WHERE r.next_at <= ebb.now() AND r.kind = 'cron' AND NOT r.sink = ANY ($2::text[]) AND NOT COALESCE(r.policy = ANY ($2::text[]), false)
ORDER BY r.next_at LIMIT $1
FOR UPDATE SKIP LOCKED
