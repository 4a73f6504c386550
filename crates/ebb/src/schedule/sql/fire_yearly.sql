-- Fires yearly events that are due: puts the occurrence into ebb.event and moves on to the next year, in one statement. $1 how
-- many, $2 what is paused. Missed: all of them, one at a time; or only the latest; or none, where missed means that it is found
-- more than a minute after its time. Expects recurring_next_at. Locks rows FOR UPDATE SKIP LOCKED.
WITH due AS (
    SELECT r.* FROM ebb.recurring r
    WHERE r.next_at <= ebb.now() AND r.kind = 'yearly' AND NOT r.sink = ANY ($2::text[])
    ORDER BY r.next_at LIMIT $1
    FOR UPDATE SKIP LOCKED
),
latest AS (
    SELECT d.*, CASE WHEN d.missed = 'all' THEN d.year ELSE GREATEST(d.year, n.year - CASE WHEN
               ebb.yearly_at(n.year, d.month, d.day, d.at, d.zone, d.leap_day) > ebb.now() THEN 1 ELSE 0 END) END AS fire_year
    FROM due d CROSS JOIN LATERAL (SELECT extract(year FROM ebb.now() AT TIME ZONE d.zone)::int4 AS year) AS n
),
place AS (
    SELECT l.*, ebb.occurrence_id(l.id, l.fire_year::text) AS occurrence, p.fire_at,
           l.missed <> 'skip' OR p.fire_at > ebb.now() - interval '1 minute' AS fires
    FROM latest l
    CROSS JOIN LATERAL (SELECT ebb.yearly_at(l.fire_year, l.month, l.day, l.at, l.zone, l.leap_day) AS fire_at) AS p
),
fired AS (
    INSERT INTO ebb.event (id, recurring, sink, due_at, ready_at, created_at, max_late, dedupe_key, subject_policy, subject_id, body)
    SELECT p.occurrence, p.id, p.sink, p.fire_at, p.fire_at, ebb.now(), p.max_late, p.dedupe_key, p.subject_policy, p.subject_id,
           ebb.event_body(p.occurrence, p.id, p.fire_at, p.payload)
    FROM place p WHERE p.fires
    ON CONFLICT (id) DO NOTHING
)
UPDATE ebb.recurring r
SET year = p.fire_year + 1,
    next_at = ebb.yearly_at(p.fire_year + 1, r.month, r.day, r.at, r.zone, r.leap_day),
    fired_year = CASE WHEN p.fires THEN p.fire_year ELSE r.fired_year END,
    passed_over = r.passed_over + (p.fire_year - r.year) + CASE WHEN p.fires THEN 0 ELSE 1 END
FROM place p WHERE r.id = p.id
RETURNING r.id, r.sink, p.fires, (p.fire_year - p.year + CASE WHEN p.fires THEN 0 ELSE 1 END)::int8 AS passed_over
