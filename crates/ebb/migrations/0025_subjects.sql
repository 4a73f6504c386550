-- What is asked of a subject, more strictly. Of a policy that is disabled or has left the file everything can be asked but a new
-- deletion: until erasing is claimed a restore always succeeds, and a hold can always be placed and lifted. An id is written
-- in one way whatever the session's settings are. What a trigger of the table kept as it was is an error.
CREATE OR REPLACE FUNCTION ebb.touch_subject(policy text, op text, subject text, moment timestamptz, due timestamptz,
                                             OUT id text, OUT deleted_at timestamptz, OUT tenant text)
LANGUAGE plpgsql SET search_path = pg_catalog SET timezone = 'UTC' SET datestyle = 'ISO, MDY' SET intervalstyle = 'postgres'
SET bytea_output = 'hex' SET extra_float_digits = 1 AS $$
DECLARE
    call text;
    enabled boolean;
BEGIN
    SELECT r.subject_call, p.enabled INTO call, enabled
    FROM ebb.retain r JOIN ebb.policy p ON p.kind = 'retain' AND p.name = r.policy
    WHERE r.policy = touch_subject.policy AND r.subjects;
    IF call IS NULL THEN
        RAISE EXCEPTION 'there is no retain policy % with subjects', quote_literal(policy)
            USING ERRCODE = 'undefined_object', HINT = 'ebb policy list shows those there are';
    END IF;
    IF op = 'delete' AND NOT enabled THEN
        RAISE EXCEPTION 'policy % is disabled: nobody would erase what is deleted now', policy
            USING ERRCODE = 'object_not_in_prerequisite_state', HINT = 'ebb policy set NAME enabled=true';
    END IF;
    BEGIN
        EXECUTE format('SELECT * FROM ebb.%I($1, $2, $3, $4)', call) INTO id, deleted_at, tenant
            USING op, subject, moment, due;
    EXCEPTION WHEN invalid_text_representation OR numeric_value_out_of_range OR invalid_parameter_value THEN
        RAISE EXCEPTION 'no subject of % can have the id %: %', policy, quote_literal(subject), SQLERRM
            USING ERRCODE = 'invalid_text_representation',
                  HINT = 'an id is the primary key as text; of several columns a JSON array of texts';
    END;
    IF op = 'delete' AND deleted_at IS NULL OR op = 'restore' AND (id IS NULL OR deleted_at IS NOT NULL) THEN
        RAISE EXCEPTION 'the row of subject % of policy % stayed as it was', quote_literal(subject), policy
            USING ERRCODE = 'object_not_in_prerequisite_state', HINT = 'a trigger of its table keeps it';
    END IF;
END
$$;

-- An event belongs to a subject by the id as its table writes it, whatever was typed: so it goes with the subject.
CREATE FUNCTION ebb.name_subject() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog AS $$
BEGIN
    IF EXISTS (SELECT FROM ebb.retain r WHERE r.policy = NEW.subject_policy AND r.subjects) THEN
        NEW.subject_id := (ebb.touch_subject(NEW.subject_policy, 'name', NEW.subject_id, NULL, NULL)).id;
    END IF;
    RETURN NEW;
EXCEPTION WHEN case_not_found THEN
    RETURN NEW;     -- the policy was applied by a version that did not ask; the next apply makes its function anew
END
$$;
CREATE TRIGGER name_subject BEFORE INSERT ON ebb.event FOR EACH ROW
    WHEN (NEW.subject_id IS NOT NULL) EXECUTE FUNCTION ebb.name_subject();
CREATE TRIGGER name_subject BEFORE INSERT ON ebb.recurring FOR EACH ROW
    WHEN (NEW.subject_id IS NOT NULL) EXECUTE FUNCTION ebb.name_subject();

-- A verified request for a subject that had failed too often is tried again.
CREATE OR REPLACE FUNCTION ebb.erase_subject(policy text, id text, by text DEFAULT current_user) RETURNS timestamptz
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog SET timezone = 'UTC' AS $$
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
        due_at = ebb.retained_until(d.policy, d.tenant, d.deleted_at, true)
    WHERE d.policy = erase_subject.policy AND d.subject_id = root.id AND d.state IN ('pending', 'warned', 'failed')
    RETURNING * INTO opened;
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
