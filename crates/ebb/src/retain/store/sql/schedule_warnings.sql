-- Writes warnings and the events that carry them ($1, as ebb.schedule_many takes them), in the order of their deletions ($2): $3
-- steps, $4 how long before each, $5 when each goes out, $6 the end of a hold and that long, $7 policy. Index: warning_pkey,
-- which lets each be there once. Lock: the deletions, held already.
WITH events AS MATERIALIZED (
    SELECT e.id, e.at FROM ebb.schedule_many($1) WITH ORDINALITY AS e (id, at)
), given AS (
    SELECT g.*, e.id AS event
    FROM unnest($2::uuid[], $3::int4[], $4::interval[], $5::timestamptz[], $6::timestamptz[]) WITH ORDINALITY
         AS g (deletion, step, before, send_at, released, at)
    JOIN events e ON e.at = g.at
), written AS (
    INSERT INTO ebb.warning (deletion, step, policy, event, before, send_at)
    SELECT g.deletion, g.step, $7, g.event, g.before, g.send_at FROM given g
)
UPDATE ebb.deletion d
SET state = 'warned', not_before = GREATEST(d.not_before, g.released), due_at = GREATEST(d.due_at, g.released)
FROM given g
WHERE d.id = g.deletion
