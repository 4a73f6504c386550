-- Subjects ($2) of a policy ($1) whose rows the application deleted itself: closed deletions and holds that are over name them no longer.
-- How many there were of both. The ids are selected, as in count_events. Index: deletion_restored, hold_subject. Lock: the rows.
WITH deletions AS (
    UPDATE ebb.deletion d SET subject_id = NULL, opened_by = NULL, closed_by = NULL, error = NULL
    WHERE d.policy = $1 AND d.subject_id = ANY ((SELECT $2::text[])::text[]) AND d.state = 'restored'
    RETURNING 1
), holds AS (
    UPDATE ebb.hold h
    SET subject_id = NULL, reason = '', placed_by = '', lifted_by = NULL, lifted_at = COALESCE(h.lifted_at, ebb.now())
    WHERE h.policy = $1 AND h.subject_id = ANY ((SELECT $2::text[])::text[]) AND (h.lifted_at IS NOT NULL OR h.until <= ebb.now())
    RETURNING 1
)
SELECT (SELECT count(*) FROM deletions) + (SELECT count(*) FROM holds)
