-- Whoever asks is told apart from the subject without standing in the way of what is asked, the time of a soft delete that was made anew
-- is answered from then on, and what is restored before it was marked names nobody.

-- As before. Where a column that a subject is called by cannot be asked (it was renamed), the name is taken for the subject's own.
CREATE OR REPLACE FUNCTION ebb.is_subject(policy text, subject text, name text) RETURNS boolean
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    call text;
    found boolean;
BEGIN
    IF subject IS NULL OR name IN ('application', 'ebb') THEN
        RETURN false;
    END IF;
    IF lower(btrim(name)) = lower(subject) THEN
        RETURN true;
    END IF;
    SELECT r.subject_call INTO call FROM ebb.retain r WHERE r.policy = $1;
    IF call IS NULL THEN
        RETURN false;
    END IF;
    BEGIN
        EXECUTE format('SELECT EXISTS (SELECT FROM ebb.%I($1, $2, NULL, NULL))', call) INTO found
            USING 'is ' || lower(btrim(name)), subject;
    EXCEPTION
        WHEN case_not_found THEN
            -- Made by an older version; the next `ebb apply` makes it anew.
            found := false;
        WHEN OTHERS THEN
            found := true;
    END;
    RETURN found;
END
$$;

-- As before; whom it is about can be said where there is neither a deletion nor a hold.
DROP FUNCTION ebb.note_subject(text, text, uuid, text, jsonb);
CREATE FUNCTION ebb.note_subject(action text, policy text, deletion uuid, by_name text, details jsonb DEFAULT '{}', subject text DEFAULT NULL)
RETURNS void LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $$
    INSERT INTO ebb.audit (action, policy, policy_version, relation, rows, by_name, details)
    SELECT $1, $2, p.version, r.relation, 0,
           CASE WHEN ebb.is_subject($2, COALESCE($6, (SELECT d.subject_id FROM ebb.deletion d WHERE d.id = $3),
                                                 (SELECT h.subject_id FROM ebb.hold h WHERE h.id = ($5 ->> 'hold')::bigint)), $4)
                THEN 'the subject' ELSE left(COALESCE($4, session_user::text), 200) END,
           jsonb_strip_nulls(jsonb_build_object('deletion', $3) || ($5 - 'reason'))
    FROM ebb.retain r LEFT JOIN ebb.policy p ON p.kind = 'retain' AND p.name = r.policy WHERE r.policy = $2
$$;

-- As before; where the application made the soft delete anew, the answer is about that one, unless somebody asked for the erasure.
CREATE OR REPLACE FUNCTION ebb.delete_subject(policy text, id text, by text DEFAULT current_user) RETURNS timestamptz
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET timezone = 'UTC' AS $$
#variable_conflict use_column
DECLARE
    root record;
    opened ebb.deletion;
    moment timestamptz := ebb.now();
    held timestamptz;
    earlier jsonb;
BEGIN
    PERFORM FROM ebb.deletion d WHERE d.policy = delete_subject.policy AND d.subject_id = delete_subject.id
        AND d.state IN ('pending', 'warned', 'erasing', 'failed') FOR UPDATE;
    root := ebb.touch_subject(policy, 'look', id, NULL, NULL);
    IF root.id IS NULL THEN
        RAISE EXCEPTION 'policy % knows no subject %', policy, quote_literal(id) USING ERRCODE = 'no_data_found';
    END IF;
    -- Looked at under the lock of the subject's row: whoever was first has committed by now.
    SELECT * INTO opened FROM ebb.deletion d WHERE d.policy = delete_subject.policy AND d.subject_id = root.id
        AND d.state IN ('pending', 'warned', 'erasing', 'failed');
    IF FOUND AND root.deleted_at IS NULL AND opened.state <> 'erasing' THEN
        UPDATE ebb.deletion d
        SET state = 'restored', closed_at = clock_timestamp(), closed_by = 'application', blocked = NULL, error = NULL
        WHERE d.id = opened.id;
        PERFORM ebb.note_subject('restore', policy, opened.id, 'application');
        earlier := opened.former;
        opened := NULL;
    ELSIF FOUND AND opened.state <> 'erasing' AND NOT opened.expedited
          AND ebb.deleted_anew(policy, root.deleted_at, opened.deleted_at) THEN
        -- Marking will open that one.
        opened.due_at := ebb.retained_until(policy, root.tenant, root.deleted_at, false);
    END IF;
    IF opened.id IS NULL THEN
        IF isfinite(root.deleted_at) THEN
            moment := root.deleted_at;
        END IF;
        INSERT INTO ebb.deletion (policy, subject_id, tenant, deleted_at, due_at, opened_by, former)
        VALUES (policy, root.id, root.tenant, moment, ebb.retained_until(policy, root.tenant, moment, false), by,
                COALESCE((ebb.touch_subject(policy, 'former', root.id, NULL, NULL)).id::jsonb, earlier))
        RETURNING * INTO opened;
        PERFORM ebb.touch_subject(policy, 'delete', root.id, moment, opened.due_at);
        PERFORM ebb.note_subject('delete', policy, opened.id, by, jsonb_build_object('due_at', opened.due_at));
    END IF;
    SELECT COALESCE(h.until, 'infinity') INTO held FROM ebb.hold h
    WHERE h.policy = delete_subject.policy AND h.subject_id = root.id AND h.lifted_at IS NULL
      AND (h.until IS NULL OR h.until > ebb.now());
    RETURN GREATEST(opened.due_at, held);
END
$$;

-- As before; the record of a restore names nobody, also where nothing was open.
CREATE OR REPLACE FUNCTION ebb.restore_subject(policy text, id text, by text DEFAULT current_user) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET timezone = 'UTC' AS $$
#variable_conflict use_column
DECLARE
    root record;
    opened ebb.deletion;
BEGIN
    PERFORM FROM ebb.deletion d WHERE d.policy = restore_subject.policy AND d.subject_id = restore_subject.id
        AND d.state IN ('pending', 'warned', 'erasing', 'failed') FOR UPDATE;
    root := ebb.touch_subject(policy, 'look', id, NULL, NULL);
    IF root.id IS NULL THEN
        RETURN false;
    END IF;
    SELECT * INTO opened FROM ebb.deletion d WHERE d.policy = restore_subject.policy AND d.subject_id = root.id
        AND d.state IN ('pending', 'warned', 'erasing', 'failed');
    IF opened.state = 'erasing' OR (opened.id IS NULL AND root.deleted_at IS NULL) THEN
        RETURN false;
    END IF;
    UPDATE ebb.deletion d SET state = 'restored', closed_at = clock_timestamp(), closed_by = by, blocked = NULL, error = NULL
    WHERE d.id = opened.id;
    PERFORM ebb.touch_subject(policy, concat_ws(' ', 'restore', opened.former::text), root.id, ebb.now(), NULL);
    PERFORM ebb.note_subject('restore', policy, opened.id, by, '{}', root.id);
    RETURN true;
END
$$;
