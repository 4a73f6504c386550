-- A hold can be lifted whatever has become of its subject's table.

-- As before; where the table cannot be looked at, because it is called otherwise than its policy says or is gone, whoever is on hold by
-- exactly this id is released.
CREATE OR REPLACE FUNCTION ebb.lift_hold(policy text, id text, by text DEFAULT current_user) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET timezone = 'UTC' AS $$
#variable_conflict use_column
DECLARE
    root record;
    named text;
    may_be_deleted boolean;
    opened uuid;
    lifted bigint;
BEGIN
    PERFORM FROM ebb.deletion d WHERE d.policy = lift_hold.policy AND d.subject_id = lift_hold.id
        AND d.state IN ('pending', 'warned', 'erasing', 'failed') FOR UPDATE;
    BEGIN
        root := ebb.touch_subject(policy, 'look', id, NULL, NULL);
        named := COALESCE(root.id, (ebb.touch_subject(policy, 'name', id, NULL, NULL)).id);
        may_be_deleted := root.deleted_at IS NOT NULL;
    EXCEPTION WHEN object_not_in_prerequisite_state OR insufficient_privilege THEN
        IF NOT EXISTS (SELECT FROM ebb.hold h WHERE h.policy = lift_hold.policy AND h.subject_id = lift_hold.id AND h.lifted_at IS NULL) THEN
            RAISE;
        END IF;
        named := id;
        may_be_deleted := true;
    END;
    UPDATE ebb.hold h SET lifted_at = ebb.now(), lifted_by = by
    WHERE h.policy = lift_hold.policy AND h.subject_id = named AND h.lifted_at IS NULL
    RETURNING h.id INTO lifted;
    IF lifted IS NULL THEN
        RAISE EXCEPTION 'subject % of policy % is not on hold', quote_literal(id), policy USING ERRCODE = 'no_data_found';
    END IF;
    UPDATE ebb.deletion d SET blocked = NULL, next_try_at = NULL
    WHERE d.policy = lift_hold.policy AND d.subject_id = named AND d.state IN ('pending', 'warned', 'erasing')
    RETURNING d.id INTO opened;
    IF opened IS NULL AND may_be_deleted THEN
        UPDATE ebb.unit u SET triggered = true WHERE u.policy = lift_hold.policy AND u.chore = 'mark';
        PERFORM pg_notify('ebb', '');
    END IF;
    PERFORM ebb.note_subject('release', policy, opened, by, jsonb_build_object('hold', lifted));
END
$$;
