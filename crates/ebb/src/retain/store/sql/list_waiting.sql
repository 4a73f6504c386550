-- Open deletions that wait for something, for people: those that failed, now or for good, whose time has come and something is in the way, that are on
-- hold, or whose warning has not been delivered; $1 policy (null: all), $2 how many. Index: deletion_failed, deletion_due,
-- deletion_claimed, hold_active, warning_failed; read only.
SELECT v.policy, v.deletion, v.subject_id, v.tenant, v.state, v.deleted_at, v.due_at, v.expedited, v.on_hold, v.hold_reason, v.hold_until,
       v.hold_since, v.blocked, v.attempts, v.next_try_at, v.error, v.rows, v.opened_at, v.closed_at, v.warning, v.warned_at, v.warning_error
FROM ebb.v_deletions v
WHERE v.deletion IN (
    SELECT d.id FROM ebb.deletion d WHERE d.state = 'failed' AND ($1::text IS NULL OR d.policy = $1)
    UNION ALL
    SELECT d.id FROM ebb.retain r JOIN ebb.deletion d ON d.policy = r.policy AND d.state IN ('pending', 'warned') AND d.due_at <= ebb.now()
    WHERE ($1::text IS NULL OR r.policy = $1) AND (ebb.still_blocked(d.blocked, d.policy, d.subject_id) IS NOT NULL OR d.attempts > 0)
    UNION ALL
    SELECT d.id FROM ebb.deletion d
    WHERE d.state = 'erasing' AND ($1::text IS NULL OR d.policy = $1) AND (ebb.still_blocked(d.blocked, d.policy, d.subject_id) IS NOT NULL OR d.attempts > 0)
    UNION ALL
    SELECT d.id FROM ebb.hold h JOIN ebb.deletion d ON d.policy = h.policy AND d.subject_id = h.subject_id
                                                  AND d.state IN ('pending', 'warned', 'erasing', 'failed')
    WHERE ($1::text IS NULL OR h.policy = $1) AND h.lifted_at IS NULL AND (h.until IS NULL OR h.until > ebb.now())
    UNION ALL
    SELECT d.id FROM ebb.retain r JOIN ebb.deletion d ON d.policy = r.policy AND d.state IN ('pending', 'warned') AND d.due_at <= ebb.now()
    WHERE ($1::text IS NULL OR r.policy = $1) AND r.warn_before <> '{}' AND NOT d.expedited
      AND NOT EXISTS (SELECT FROM ebb.warning w WHERE w.deletion = d.id AND w.step = 0 AND w.accepted_at IS NOT NULL)
    UNION ALL
    SELECT w.deletion FROM ebb.warning w JOIN ebb.retain r ON r.policy = w.policy AND r.warn_before <> '{}' AND NOT r.proceed
    WHERE ($1::text IS NULL OR w.policy = $1) AND w.failed_at IS NOT NULL AND w.accepted_at IS NULL AND w.step = 0
)
  AND v.state IN ('pending', 'warned', 'erasing', 'failed')
ORDER BY v.state <> 'failed', v.due_at, v.deletion
LIMIT $2
