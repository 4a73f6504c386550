-- Makes the recurring event of a [[schedule]] what its policy says: $1 policy, $2 sink, $3 the next time if it is new or its
-- calendar changed, $4 cron, $5 zone, $6 missed, $7 max_late, $8 payload. Expects recurring_policy. Changes nothing when nothing
-- differs.
INSERT INTO ebb.recurring AS r (id, kind, policy, sink, next_at, cron, zone, missed, max_late, payload, created_at)
VALUES (ebb.occurrence_id('00000000-0000-0000-0000-000000000000', 'schedule/' || $1), 'cron', $1, $2, $3, $4, $5, $6, $7, $8, ebb.now())
ON CONFLICT (id) DO UPDATE
SET sink = EXCLUDED.sink, cron = EXCLUDED.cron, zone = EXCLUDED.zone, missed = EXCLUDED.missed, max_late = EXCLUDED.max_late,
    payload = EXCLUDED.payload, version = r.version + 1, cancelled_at = NULL,
    next_at = CASE WHEN r.cron = EXCLUDED.cron AND r.zone = EXCLUDED.zone AND r.next_at IS NOT NULL THEN r.next_at ELSE EXCLUDED.next_at END
WHERE (r.sink, r.cron, r.zone, r.missed, r.max_late, r.payload, r.next_at IS NULL)
      IS DISTINCT FROM (EXCLUDED.sink, EXCLUDED.cron, EXCLUDED.zone, EXCLUDED.missed, EXCLUDED.max_late, EXCLUDED.payload, EXCLUDED.next_at IS NULL)
