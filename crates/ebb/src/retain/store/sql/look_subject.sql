-- A subject ($2) of a policy ($1) as its table has it: its id there, none when there is no such row; and, where it is soft-deleted and no
-- deletion is of that moment yet, since when and when it will be due. Index: deletion_open. Lock: the subject's row.
SELECT t.id, CASE WHEN unmarked.yes THEN t.deleted_at END AS deleted_at,
       CASE WHEN unmarked.yes THEN ebb.retained_until($1, t.tenant, t.deleted_at, false) END AS due_at
FROM ebb.touch_subject($1, 'look', $2, NULL, NULL) AS t
CROSS JOIN LATERAL (
    SELECT isfinite(t.deleted_at) AND NOT EXISTS (
        SELECT FROM ebb.deletion d
        WHERE d.policy = $1 AND d.subject_id = t.id AND d.state IN ('pending', 'warned', 'erasing', 'failed')
          AND (d.state = 'erasing' OR ebb.deleted_anew($1, t.deleted_at, d.deleted_at) IS NOT TRUE)) AS yes
) AS unmarked
