-- Looks again, under the locks, at deletions ($1) that are to be warned ($2: the step, $3: how long before, $4: after which
-- wait): none that is on hold. When each goes out, and the date that it names: for a first warning at least its whole term
-- later, counted also from the end of a hold that ended by itself. Index: deletion_pkey, hold_subject. Read only.
SELECT s.at::int4 - 1 AS at, ebb.now() + s.wait AS send_at, ebb.now() AS now,
       CASE WHEN s.step = 0 THEN GREATEST(d.due_at, ebb.later(ebb.now() + s.wait, s.before, r.zone), ebb.later(h.over, s.before, r.zone))
            ELSE d.due_at END AS promised,
       CASE WHEN s.step = 0 THEN ebb.later(h.over, s.before, r.zone) END AS released
FROM unnest($1::uuid[], $2::int4[], $3::interval[], $4::interval[]) WITH ORDINALITY AS s (id, step, before, wait, at)
JOIN ebb.deletion d ON d.id = s.id AND d.state IN ('pending', 'warned') AND NOT d.expedited
JOIN ebb.retain r ON r.policy = d.policy
LEFT JOIN LATERAL (
    SELECT max(h.until) FILTER (WHERE h.until <= ebb.now()) AS over, count(*) FILTER (WHERE h.until IS NULL OR h.until > ebb.now()) AS held
    FROM ebb.hold h WHERE h.policy = d.policy AND h.subject_id = d.subject_id AND h.lifted_at IS NULL
) h ON true
WHERE h.held = 0
