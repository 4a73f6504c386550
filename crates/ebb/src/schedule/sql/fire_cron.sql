-- Fires occurrences of recurring events by cron and moves these on, in one statement: $1 events and $2 the due times to fire; $3
-- the events to move on, $4 to when (null: never), $5 how many occurrences were passed over. Expects recurring_pkey.
WITH fired AS (
    INSERT INTO ebb.event (id, recurring, sink, due_at, ready_at, created_at, max_late, dedupe_key, subject_policy, subject_id, body)
    SELECT o.id, r.id, r.sink, t.due_at, t.due_at, ebb.now(), r.max_late, r.dedupe_key, r.subject_policy, r.subject_id,
           ebb.event_body(o.id, r.id, t.due_at, r.payload)
    FROM unnest($1::uuid[], $2::timestamptz[]) AS t (recurring, due_at)
    JOIN ebb.recurring r ON r.id = t.recurring
    CROSS JOIN LATERAL (SELECT ebb.occurrence_id(r.id, extract(epoch FROM t.due_at)::int8::text)) AS o (id)
    ON CONFLICT (id) DO NOTHING
)
UPDATE ebb.recurring r SET next_at = t.next_at, passed_over = r.passed_over + t.passed_over
FROM unnest($3::uuid[], $4::timestamptz[], $5::int8[]) AS t (id, next_at, passed_over)
WHERE r.id = t.id
