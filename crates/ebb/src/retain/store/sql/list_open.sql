-- Open deletions for people: $1 policy (null: all), stuck ones first, then the soonest due, $2 how many; $3 only in this state, $4 only of
-- subjects whose id begins like that, $5 the deletion after which the page starts. Index: deletion_due, deletion_claimed and
-- deletion_failed for each policy; a part of an id is looked for along them. Read only.
WITH place AS (
    SELECT a.state <> 'failed' AS place, a.due_at, a.id FROM ebb.deletion a WHERE a.id = $5
), found AS (
    SELECT o.place, o.due_at, o.id
    FROM ebb.retain r
    CROSS JOIN LATERAL (
        (SELECT true AS place, d.due_at, d.id FROM ebb.deletion d
         WHERE d.policy = r.policy AND d.state IN ('pending', 'warned') AND ($3::text IS NULL OR d.state = $3)
           AND ($4::text IS NULL OR starts_with(d.subject_id, $4))
           AND ($5::uuid IS NULL OR (true, d.due_at, d.id) > (SELECT p.place, p.due_at, p.id FROM place p))
         ORDER BY d.due_at, d.id LIMIT $2)
        UNION ALL
        (SELECT true, d.due_at, d.id FROM ebb.deletion d
         WHERE d.policy = r.policy AND d.state = 'erasing' AND ($3::text IS NULL OR d.state = $3)
           AND ($4::text IS NULL OR starts_with(d.subject_id, $4))
           AND ($5::uuid IS NULL OR (true, d.due_at, d.id) > (SELECT p.place, p.due_at, p.id FROM place p))
         ORDER BY d.due_at, d.id LIMIT $2)
        UNION ALL
        (SELECT false, d.due_at, d.id FROM ebb.deletion d
         WHERE d.policy = r.policy AND d.state = 'failed' AND ($3::text IS NULL OR d.state = $3)
           AND ($4::text IS NULL OR starts_with(d.subject_id, $4))
           AND ($5::uuid IS NULL OR (false, d.due_at, d.id) > (SELECT p.place, p.due_at, p.id FROM place p))
         ORDER BY d.due_at, d.id LIMIT $2)
    ) AS o
    WHERE r.subjects AND ($1::text IS NULL OR r.policy = $1)
    ORDER BY 1, 2, 3
    LIMIT $2
)
SELECT v.policy, v.deletion, v.subject_id, v.tenant, v.state, v.deleted_at, v.due_at, v.expedited, v.on_hold, v.hold_reason, v.hold_until,
       v.hold_since, v.blocked, v.attempts, v.next_try_at, v.error, v.rows, v.opened_at, v.closed_at, v.warning, v.warned_at, v.warning_error
FROM found f
JOIN ebb.v_deletions v ON v.deletion = f.id
ORDER BY f.place, f.due_at, f.id
