-- Makes an event ready again with all its attempts: $1 one that failed, or ended undelivered (null: every dead letter), $2 of this
-- sink only. Whoever asks for it wants it delivered however late it is; a warning of a deletion, which names a date, is made anew
-- instead, and one that was taken back, or that nobody waits for any more, stays as it is. What was cancelled and has not ended yet ends first. Wakes whoever sleeps. Expects event_pkey,
-- event_history_id, event_history_dead, event_cancel_pkey and warning_event.
WITH waiting AS (
    UPDATE ebb.event e SET ready_at = ebb.now(), lease_until = NULL, attempts = 0, token = e.token + 1,
                           max_late = CASE WHEN EXISTS (SELECT FROM ebb.warning w WHERE w.event = e.id) THEN e.max_late END
    WHERE e.id = $1 AND (e.lease_until IS NULL OR e.lease_until <= clock_timestamp()) AND e.attempts > 0
      AND NOT EXISTS (SELECT FROM ebb.event_cancel c WHERE c.id = e.id)
    RETURNING e.id
),
ended AS (
    SELECT h.id, h.subject_policy FROM ebb.event_history h
    WHERE CASE WHEN $1::uuid IS NULL THEN h.state = 'dead' AND ($2::text IS NULL OR h.sink = $2)
               ELSE h.id = $1 AND h.state IN ('dead', 'skipped', 'cancelled') END
      AND h.body <> ''
      -- Of other events a body may have neither of these.
      AND ((h.state <> 'dead' OR NOT EXISTS (SELECT FROM ebb.warning w WHERE w.event = h.id))
           AND h.subject_policy IS NOT NULL AND h.body::jsonb -> 'data' ->> 'policy' = h.subject_policy
           AND h.body::jsonb ->> 'type' IN ('deletion_warning', 'deletion_reminder')) IS NOT TRUE
),
warnings AS MATERIALIZED (
    SELECT e.id FROM ended e WHERE e.subject_policy IS NOT NULL AND ebb.warn_again(e.id)
),
back AS (
    DELETE FROM ebb.event_history h
    WHERE h.id IN (SELECT e.id FROM ended e WHERE e.id NOT IN (SELECT w.id FROM warnings w)) AND h.body <> ''
    RETURNING h.*
),
uncancelled AS (
    DELETE FROM ebb.event_cancel c WHERE c.id IN (SELECT b.id FROM back b)
),
again AS (
    INSERT INTO ebb.event (id, recurring, sink, due_at, ready_at, token, attempts, created_at, dedupe_key, subject_policy, subject_id,
                           node, error, response, body)
    SELECT b.id, b.recurring, b.sink, b.due_at, ebb.now(), b.token + 1, 0, b.created_at, b.dedupe_key, b.subject_policy, b.subject_id,
           b.node, b.error, b.response, b.body
    FROM back b
    ON CONFLICT (id) DO NOTHING
    RETURNING id
),
woken AS MATERIALIZED (
    SELECT ebb.event_wake(ebb.now()) WHERE EXISTS (SELECT FROM waiting) OR EXISTS (SELECT FROM again)
)
SELECT (SELECT count(*) FROM waiting) + (SELECT count(*) FROM again) + (SELECT count(*) FROM warnings) + 0 * (SELECT count(*) FROM woken)
