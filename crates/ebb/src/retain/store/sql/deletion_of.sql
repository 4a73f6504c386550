-- The open deletion of a subject ($2) of a policy ($1), or its last one. Index: deletion_subject; read only.
SELECT v.deletion, v.subject_id, v.tenant, v.state, v.deleted_at, v.due_at, v.expedited, v.on_hold, v.hold_reason, v.hold_until,
       v.hold_since, v.warning, v.warned_at, v.warning_error, v.blocked, v.attempts, v.next_try_at, v.error, v.rows, v.opened_at, v.closed_at
FROM ebb.v_deletions v
WHERE v.policy = $1 AND v.subject_id = $2
ORDER BY v.state IN ('pending', 'warned', 'erasing', 'failed') DESC, v.opened_at DESC
LIMIT 1
