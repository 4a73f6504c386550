-- Open deletions for people: $1 policy (null: all), stuck ones first, then the soonest due, $2 how many. Index: deletion_due and
-- deletion_claimed for each policy; those that failed are few. Read only.
SELECT r.policy, v.deletion, v.subject_id, v.tenant, v.state, v.deleted_at, v.due_at, v.expedited, v.on_hold, v.hold_reason, v.hold_until,
       v.blocked, v.attempts, v.next_try_at, v.error, v.rows, v.opened_at, v.closed_at, v.warning, v.warned_at, v.warning_error
FROM ebb.retain r
CROSS JOIN LATERAL (
    (SELECT d.id FROM ebb.deletion d WHERE d.policy = r.policy AND d.state IN ('pending', 'warned') ORDER BY d.due_at, d.id LIMIT $2)
    UNION ALL
    (SELECT d.id FROM ebb.deletion d WHERE d.policy = r.policy AND d.state = 'erasing' LIMIT $2)
    UNION ALL
    (SELECT d.id FROM ebb.deletion d WHERE d.policy = r.policy AND d.state = 'failed' LIMIT $2)
) AS o
JOIN ebb.v_deletions v ON v.deletion = o.id
WHERE r.subjects AND ($1::text IS NULL OR r.policy = $1)
ORDER BY v.state <> 'failed', v.due_at, v.deletion
LIMIT $2
