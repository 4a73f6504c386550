-- Subjects ($2, pseudonyms $3) of a policy ($1) over a table ($6) who went as rows of subjects of another ($4, whose deletions are $5):
-- what is open, closed or held for them names them no longer, and a record says with whom they went. The ids are named twice, as in
-- close_erased. Index: deletion_open, deletion_restored, hold_subject. Lock: the rows.
WITH gone AS (
    SELECT g.id, g.subject, g.deletion FROM unnest($2::text[], $3::bytea[], $5::uuid[]) AS g (id, subject, deletion)
), open AS (
    UPDATE ebb.deletion d
    SET state = 'erased', subject_id = NULL, opened_by = NULL, error = NULL, blocked = NULL, next_try_at = NULL,
        rows = COALESCE(d.rows, 0) + 1, closed_at = ebb.now(), closed_by = 'ebb'
    WHERE d.policy = $1 AND d.subject_id = ANY ((SELECT $2::text[])::text[]) AND d.state IN ('pending', 'warned', 'failed')
), older AS (
    UPDATE ebb.deletion d SET subject_id = NULL, opened_by = NULL, closed_by = NULL, error = NULL
    WHERE d.policy = $1 AND d.subject_id = ANY ((SELECT $2::text[])::text[]) AND d.state = 'restored'
), holds AS (
    UPDATE ebb.hold h
    SET subject_id = NULL, reason = '', placed_by = '', lifted_by = NULL, lifted_at = COALESCE(h.lifted_at, ebb.now())
    WHERE h.policy = $1 AND h.subject_id = ANY ((SELECT $2::text[])::text[])
)
INSERT INTO ebb.audit (action, policy, relation, rows, by_name, subject, details)
SELECT 'erase_along', $1, $6, 1, 'ebb', gone.subject,
       jsonb_build_object('erased_at', ebb.now(), 'with', jsonb_strip_nulls(jsonb_build_object('policy', $4::text, 'deletion', gone.deletion)))
FROM gone
