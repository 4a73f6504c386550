-- Recurring events of schedules that are off no longer come: $1 the policies that are on. Expects recurring_next_at.
UPDATE ebb.recurring r SET next_at = NULL, cancelled_at = ebb.now(), version = r.version + 1
WHERE r.policy IS NOT NULL AND r.next_at IS NOT NULL AND NOT r.policy = ANY ($1::text[])
