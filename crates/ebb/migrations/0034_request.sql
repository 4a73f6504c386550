-- A verified request is about the subject as it is: where the application has soft-deleted it again since its deletion was opened,
-- the deletion is about that soft delete from now on, and marking does not take it for one that was taken back.
CREATE OR REPLACE FUNCTION ebb.erase_subject(policy text, id text, by text DEFAULT current_user) RETURNS timestamptz
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET timezone = 'UTC' AS $$
#variable_conflict use_column
DECLARE
    root record;
    opened ebb.deletion;
    held timestamptz;
BEGIN
    PERFORM ebb.delete_subject(policy, id, by);
    root := ebb.touch_subject(policy, 'look', id, NULL, NULL);
    UPDATE ebb.deletion d
    SET expedited = true, not_before = NULL, next_try_at = NULL, attempts = 0,
        state = CASE WHEN d.state <> 'failed' THEN d.state
                     WHEN EXISTS (SELECT FROM ebb.warning w WHERE w.deletion = d.id AND w.step = 0) THEN 'warned'
                     ELSE 'pending' END,
        deleted_at = since.moment,
        due_at = ebb.retained_until(d.policy, d.tenant, since.moment, true)
    FROM (SELECT o.id, GREATEST(o.deleted_at, LEAST(CASE WHEN isfinite(root.deleted_at) THEN root.deleted_at END, ebb.now()))
          FROM ebb.deletion o WHERE o.policy = erase_subject.policy AND o.subject_id = root.id) AS since (id, moment)
    WHERE d.id = since.id AND d.policy = erase_subject.policy AND d.subject_id = root.id
      AND d.state IN ('pending', 'warned', 'failed')
    RETURNING d.* INTO opened;
    IF opened.id IS NULL THEN
        SELECT d.due_at INTO held FROM ebb.deletion d
        WHERE d.policy = erase_subject.policy AND d.subject_id = root.id AND d.state = 'erasing';
        RETURN held;
    END IF;
    PERFORM ebb.touch_subject(policy, 'due', root.id, NULL, opened.due_at);
    PERFORM ebb.note_subject('erase_requested', policy, opened.id, by, jsonb_build_object('due_at', opened.due_at));
    SELECT COALESCE(h.until, 'infinity') INTO held FROM ebb.hold h
    WHERE h.policy = erase_subject.policy AND h.subject_id = root.id AND h.lifted_at IS NULL
      AND (h.until IS NULL OR h.until > ebb.now());
    RETURN GREATEST(opened.due_at, held);
END
$$;
