-- Makes the recurring event of each [[schedule]] what its policy says: $1 policies, $2 sinks, $3 the next time if it is new or
-- its calendar changed, $4 cron, $5 zone, $6 missed, $7 max_late, $8 payload. Expects recurring_pkey. Changes and locks nothing
-- where nothing differs.
WITH wanted AS (
    SELECT ebb.occurrence_id('00000000-0000-0000-0000-000000000000', 'schedule/' || w.policy) AS id, w.*
    FROM unnest($1::text[], $2::text[], $3::timestamptz[], $4::text[], $5::text[], $6::text[], $7::interval[], $8::jsonb[])
        AS w (policy, sink, next_at, cron, zone, missed, max_late, payload)
)
INSERT INTO ebb.recurring AS r (id, kind, policy, sink, next_at, cron, zone, missed, max_late, payload, created_at)
SELECT w.id, 'cron', w.policy, w.sink, w.next_at, w.cron, w.zone, w.missed, w.max_late, w.payload, ebb.now()
FROM wanted w
WHERE NOT EXISTS (
    SELECT FROM ebb.recurring k
    WHERE k.id = w.id
      AND (k.sink, k.cron, k.zone, k.missed, k.max_late, k.payload, k.next_at IS NULL)
          IS NOT DISTINCT FROM (w.sink, w.cron, w.zone, w.missed, w.max_late, w.payload, w.next_at IS NULL)
)
ORDER BY w.id
ON CONFLICT (id) DO UPDATE
SET sink = EXCLUDED.sink, cron = EXCLUDED.cron, zone = EXCLUDED.zone, missed = EXCLUDED.missed, max_late = EXCLUDED.max_late,
    payload = EXCLUDED.payload, version = r.version + 1, cancelled_at = NULL,
    next_at = CASE WHEN r.cron = EXCLUDED.cron AND r.zone = EXCLUDED.zone AND r.next_at IS NOT NULL THEN r.next_at ELSE EXCLUDED.next_at END
WHERE (r.sink, r.cron, r.zone, r.missed, r.max_late, r.payload, r.next_at IS NULL)
      IS DISTINCT FROM (EXCLUDED.sink, EXCLUDED.cron, EXCLUDED.zone, EXCLUDED.missed, EXCLUDED.max_late, EXCLUDED.payload, EXCLUDED.next_at IS NULL)
