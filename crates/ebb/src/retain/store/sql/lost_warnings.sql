-- Warnings of a policy ($1) whose event is nowhere any more, as after somebody deleted it by hand: they are made anew.
-- Index: warning_under_way, event_pkey.
DELETE FROM ebb.warning w
WHERE w.policy = $1 AND w.accepted_at IS NULL AND w.failed_at IS NULL
  AND NOT EXISTS (SELECT FROM ebb.event e WHERE e.id = w.event)
