-- Verified requests and links are about the soft delete that is there. A request for a subject that the application has soft-deleted
-- again since its deletion was opened moves the deletion to that soft delete, and marking does not take it for one that was taken back.
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

-- Whether a row's soft delete is another one than that of a deletion: later by more than a column may round, or than a day may hide.
CREATE FUNCTION ebb.deleted_anew(policy text, in_row timestamptz, in_deletion timestamptz) RETURNS boolean
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT isfinite($2) AND $2 - CASE WHEN bool_and(COALESCE(NULLIF(t.typbasetype, 0), t.oid) <> 'date'::regtype)
                                      THEN interval '1 second' ELSE interval '25 hours' END >= $3
    FROM ebb.policy p
    JOIN ebb.retain r ON r.policy = p.name
    JOIN pg_attribute a ON a.attrelid = to_regclass(r.relation) AND a.attname = p.spec ->> 'deleted_at'
    JOIN pg_type t ON t.oid = a.atttypid
    WHERE p.kind = 'retain' AND p.name = $1
$$;

-- As before; a deletion that was taken back and made anew since is another one, and needs its own link.
CREATE OR REPLACE FUNCTION ebb.restore_deletion(deletion uuid, by text) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET timezone = 'UTC' AS $$
DECLARE
    opened ebb.deletion;
    root record;
BEGIN
    SELECT * INTO opened FROM ebb.deletion d WHERE d.id = $1 FOR UPDATE;
    IF NOT FOUND THEN
        RETURN 'unknown';
    ELSIF opened.state = 'restored' THEN
        RETURN 'used';
    ELSIF opened.state IN ('erasing', 'erased') THEN
        RETURN 'gone';
    END IF;
    root := ebb.touch_subject(opened.policy, 'look', opened.subject_id, NULL, NULL);
    IF ebb.deleted_anew(opened.policy, root.deleted_at, opened.deleted_at) THEN
        UPDATE ebb.deletion d
        SET state = 'restored', closed_at = clock_timestamp(), closed_by = 'application', blocked = NULL, error = NULL
        WHERE d.id = opened.id;
        PERFORM ebb.note_subject('restore', opened.policy, opened.id, 'application');
        RETURN 'used';
    END IF;
    -- It is the only open one of its subject, and its row is locked.
    RETURN CASE WHEN ebb.restore_subject(opened.policy, opened.subject_id, $2) THEN 'restored' ELSE 'gone' END;
END
$$;

-- Subjects who went as rows of another policy's subjects are found by their pseudonym, too.
CREATE INDEX audit_along_subject ON ebb.audit (subject) WHERE action = 'erase_along';
