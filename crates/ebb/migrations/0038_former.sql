-- A restore puts the status back that its deletion replaced: an account that was banned when it was deleted is banned again.

-- What the status column said before, as a JSON text or null; none where Ebb did not replace it. Kept while the deletion is open.
ALTER TABLE ebb.deletion ADD COLUMN former jsonb;

CREATE FUNCTION ebb.forget_former() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    NEW.former := NULL;
    RETURN NEW;
END
$$;
CREATE TRIGGER forget_former BEFORE UPDATE ON ebb.deletion FOR EACH ROW
    WHEN (NEW.former IS NOT NULL AND NEW.state IN ('erased', 'restored')) EXECUTE FUNCTION ebb.forget_former();

-- As before; op may also be `former`, which reads the status as JSON (as the id, none where it says deleted already), and `restore` and
-- `revive` may be followed by what to put back. A policy's function of before that knows neither does what it did.
CREATE OR REPLACE FUNCTION ebb.touch_subject(policy text, op text, subject text, moment timestamptz, due timestamptz,
                                             OUT id text, OUT deleted_at timestamptz, OUT tenant text)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET timezone = 'UTC' SET datestyle = 'ISO, MDY' SET intervalstyle = 'postgres'
SET bytea_output = 'hex' SET extra_float_digits = 1 AS $$
DECLARE
    call text;
    enabled boolean;
    verb text := split_part(op, ' ', 1);
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
    call := format('SELECT * FROM ebb.%I($1, $2, $3, $4)', call);
    BEGIN
        EXECUTE call INTO id, deleted_at, tenant USING op, subject, moment, due;
    EXCEPTION
        WHEN case_not_found THEN
            IF verb = 'former' THEN
                RETURN;
            ELSIF verb = op THEN
                RAISE;
            END IF;
            EXECUTE call INTO id, deleted_at, tenant USING verb, subject, moment, due;
        WHEN invalid_text_representation OR numeric_value_out_of_range OR invalid_parameter_value THEN
            RAISE EXCEPTION 'no subject of % can have the id %: %', policy, quote_literal(subject), SQLERRM
                USING ERRCODE = 'invalid_text_representation',
                      HINT = 'an id is the primary key as text; of several columns a JSON array of texts';
    END;
    IF verb = 'delete' AND deleted_at IS NULL OR verb = 'restore' AND (id IS NULL OR deleted_at IS NOT NULL) THEN
        RAISE EXCEPTION 'the row of subject % of policy % stayed as it was', quote_literal(subject), policy
            USING ERRCODE = 'object_not_in_prerequisite_state', HINT = 'a trigger of its table keeps it';
    END IF;
END
$$;

-- As before; what the deletion replaces is kept with it. Where the application took an earlier one back and the status still says
-- deleted, that one knows what it said.
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

-- As before; what the deletion replaced is put back.
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
    PERFORM ebb.note_subject('restore', policy, opened.id, by);
    RETURN true;
END
$$;

-- As before, with the status that a deletion replaces or puts back.
CREATE OR REPLACE FUNCTION ebb.mark_subject(policy text, id text, moment timestamptz, tenant text, mirrors boolean) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET timezone = 'UTC' SET lock_timeout = '200ms' AS $$
#variable_conflict use_column
DECLARE
    opened uuid;
    earlier jsonb;
    due timestamptz;
BEGIN
    SELECT d.id, d.former INTO opened, earlier FROM ebb.deletion d
    WHERE d.policy = $1 AND d.subject_id = $2 AND d.state IN ('pending', 'warned', 'failed')
      AND ($3 IS NULL OR (d.deleted_at < $3 - interval '1 second' AND d.opened_at < pg_catalog.now() AND isfinite($3)))
    FOR UPDATE SKIP LOCKED;
    IF FOUND THEN
        UPDATE ebb.deletion d
        SET state = 'restored', closed_at = clock_timestamp(), closed_by = 'application', blocked = NULL, error = NULL
        WHERE d.id = opened;
        IF $3 IS NULL AND $5 THEN
            PERFORM ebb.touch_subject($1, concat_ws(' ', 'revive', earlier::text), $2, NULL, NULL);
        END IF;
        PERFORM ebb.note_subject('restore', $1, opened, 'application');
    END IF;
    IF isfinite($3) AND NOT EXISTS (SELECT FROM ebb.hold h WHERE h.policy = $1 AND h.subject_id = $2 AND h.lifted_at IS NULL
                                    AND (h.until IS NULL OR h.until > ebb.now())) THEN
        INSERT INTO ebb.deletion (policy, subject_id, tenant, deleted_at, due_at, opened_by, former)
        VALUES ($1, $2, $4, $3, ebb.retained_until($1, $4, $3, false), 'application',
                CASE WHEN $5 THEN COALESCE((ebb.touch_subject($1, 'former', $2, NULL, NULL)).id::jsonb, earlier) END)
        ON CONFLICT (policy, subject_id) WHERE state IN ('pending', 'warned', 'erasing', 'failed') DO NOTHING
        RETURNING ebb.deletion.id, ebb.deletion.due_at INTO opened, due;
        IF FOUND THEN
            IF $5 THEN
                PERFORM ebb.touch_subject($1, 'mark', $2, $3, due);
            END IF;
            PERFORM ebb.note_subject('mark', $1, opened, 'application', jsonb_build_object('due_at', due));
        END IF;
    END IF;
END
$$;

-- As before; a deletion that was made anew is opened at once, so that what the earlier one replaced is not forgotten.
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
        PERFORM ebb.mark_subject(opened.policy, root.id, root.deleted_at, root.tenant, true);
        RETURN 'used';
    END IF;
    -- It is the only open one of its subject, and its row is locked.
    RETURN CASE WHEN ebb.restore_subject(opened.policy, opened.subject_id, $2) THEN 'restored' ELSE 'gone' END;
END
$$;
