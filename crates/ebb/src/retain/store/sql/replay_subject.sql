-- Opens the deletion of a subject ($2 of policy $1) that was erased before and is there again: as a requested one, with the
-- soft delete it had ($3); $4 by. One that had failed too often is tried again, as for any request. Index: deletion_open, warning_pkey. Lock: the subject's row, and its deletion where one is open.
WITH root AS MATERIALIZED (
    SELECT t.id, t.deleted_at, t.tenant FROM ebb.touch_subject($1, 'delete', $2, $3, ebb.now()) t
), opened AS (
    INSERT INTO ebb.deletion AS d (policy, subject_id, tenant, deleted_at, due_at, expedited, opened_by)
    SELECT $1, root.id, root.tenant, root.deleted_at, ebb.retained_until($1, root.tenant, root.deleted_at, true), true, $4
    FROM root WHERE root.id IS NOT NULL
    ON CONFLICT (policy, subject_id) WHERE state IN ('pending', 'warned', 'erasing', 'failed')
    DO UPDATE SET expedited = true, due_at = EXCLUDED.due_at, not_before = NULL, next_try_at = NULL, attempts = 0,
        state = CASE WHEN d.state <> 'failed' THEN d.state
                     WHEN EXISTS (SELECT FROM ebb.warning w WHERE w.deletion = d.id AND w.step = 0) THEN 'warned'
                     ELSE 'pending' END
    RETURNING d.id
)
SELECT ebb.note_subject('replay', $1, opened.id, $4)::text FROM opened
