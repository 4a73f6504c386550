-- Subjects that are soft-deleted once more, and warnings that are tried once more: both are something new.

-- As before; a soft delete that is later than the one of an open deletion opens another, and of one that is taken back no column says
-- any more that it is deleted. A deletion that was opened since this
-- transaction began may be its own: Ebb's functions open it before they touch the row.
CREATE OR REPLACE FUNCTION ebb.mark_subject(policy text, id text, moment timestamptz, tenant text, mirrors boolean) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET timezone = 'UTC' SET lock_timeout = '200ms' AS $$
#variable_conflict use_column
DECLARE
    opened uuid;
    due timestamptz;
BEGIN
    SELECT d.id INTO opened FROM ebb.deletion d
    WHERE d.policy = $1 AND d.subject_id = $2 AND d.state IN ('pending', 'warned', 'failed')
      AND ($3 IS NULL OR (d.deleted_at < $3 - interval '1 second' AND d.opened_at < pg_catalog.now() AND isfinite($3)))
    FOR UPDATE SKIP LOCKED;
    IF FOUND THEN
        UPDATE ebb.deletion d
        SET state = 'restored', closed_at = clock_timestamp(), closed_by = 'application', blocked = NULL, error = NULL
        WHERE d.id = opened;
        IF $3 IS NULL AND $5 THEN
            PERFORM ebb.touch_subject($1, 'revive', $2, NULL, NULL);
        END IF;
        PERFORM ebb.note_subject('restore', $1, opened, 'application');
    END IF;
    IF isfinite($3) THEN
        INSERT INTO ebb.deletion (policy, subject_id, tenant, deleted_at, due_at, opened_by)
        VALUES ($1, $2, $4, $3, ebb.retained_until($1, $4, $3, false), 'application')
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

-- As before; a deletion whose soft delete the application has taken back is over, and does not swallow the new one. Whoever is on
-- hold is not erased before the hold ends.
CREATE OR REPLACE FUNCTION ebb.delete_subject(policy text, id text, by text DEFAULT current_user) RETURNS timestamptz
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog SET timezone = 'UTC' AS $$
#variable_conflict use_column
DECLARE
    root record;
    opened ebb.deletion;
    moment timestamptz := ebb.now();
    held timestamptz;
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
        opened := NULL;
    END IF;
    IF opened.id IS NULL THEN
        moment := COALESCE(root.deleted_at, moment);
        INSERT INTO ebb.deletion (policy, subject_id, tenant, deleted_at, due_at, opened_by)
        VALUES (policy, root.id, root.tenant, moment, ebb.retained_until(policy, root.tenant, moment, false), by)
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

-- A warning that no sink took is not sent again as it was, because its date has passed: it is made anew by the chore that warns, with
-- the dates of then. False: the event is no such warning.
CREATE FUNCTION ebb.warn_again(event uuid) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    of record;
BEGIN
    SELECT w.deletion, w.policy INTO of FROM ebb.warning w
    WHERE w.event = $1 AND w.failed_at IS NOT NULL AND w.accepted_at IS NULL;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    PERFORM FROM ebb.deletion d WHERE d.id = of.deletion FOR UPDATE;
    UPDATE ebb.event_history h SET state = 'cancelled', body = '' WHERE h.id = $1 AND h.state = 'dead';
    DELETE FROM ebb.warning w WHERE w.event = $1 AND w.accepted_at IS NULL;
    UPDATE ebb.deletion d SET state = 'pending'
    WHERE d.id = of.deletion AND d.state = 'warned'
      AND NOT EXISTS (SELECT FROM ebb.warning w WHERE w.deletion = d.id AND w.step = 0);
    UPDATE ebb.unit u SET triggered = true WHERE u.policy = of.policy AND u.chore = 'warn';
    PERFORM pg_notify('ebb', '');
    RETURN true;
END
$$;

-- Records of holds name the hold: whose it is can be looked up as long as the subject is there. A second hold on a subject never
-- shortens the first: both reasons stand until the later end.
CREATE OR REPLACE FUNCTION ebb.place_hold(policy text, id text, reason text, until timestamptz DEFAULT NULL,
                                          by text DEFAULT current_user) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog SET timezone = 'UTC' AS $$
#variable_conflict use_column
DECLARE
    root record;
    placed bigint;
BEGIN
    IF btrim(COALESCE(reason, '')) = '' THEN
        RAISE EXCEPTION 'a hold has a reason' USING ERRCODE = 'invalid_parameter_value';
    END IF;
    IF until <= ebb.now() THEN
        RAISE EXCEPTION 'a hold until % would be over already', until USING ERRCODE = 'invalid_parameter_value';
    END IF;
    PERFORM FROM ebb.deletion d WHERE d.policy = place_hold.policy AND d.subject_id = place_hold.id
        AND d.state IN ('pending', 'warned', 'erasing', 'failed') FOR UPDATE;
    root := ebb.touch_subject(policy, 'look', id, NULL, NULL);
    IF root.id IS NULL THEN
        RAISE EXCEPTION 'policy % knows no subject %', policy, quote_literal(id) USING ERRCODE = 'no_data_found';
    END IF;
    -- Batches that take rows of the tree by themselves have ended after this, and others wait until the hold is there.
    PERFORM FROM ebb.gate g
    WHERE g.relations && ARRAY(SELECT r.relation FROM ebb.reach r WHERE r.policy = place_hold.policy)
    ORDER BY g.policy FOR UPDATE;
    -- One that is over counts no more.
    UPDATE ebb.hold h SET lifted_at = h.until
    WHERE h.policy = place_hold.policy AND h.subject_id = root.id AND h.lifted_at IS NULL AND h.until <= ebb.now();
    INSERT INTO ebb.hold AS h (policy, subject_id, reason, until, placed_at, placed_by)
    VALUES (policy, root.id, reason, until, ebb.now(), by)
    ON CONFLICT (policy, subject_id) WHERE lifted_at IS NULL
    DO UPDATE SET until = CASE WHEN h.until IS NOT NULL AND EXCLUDED.until IS NOT NULL THEN GREATEST(h.until, EXCLUDED.until) END,
        reason = CASE WHEN h.reason = EXCLUDED.reason THEN h.reason ELSE h.reason || '; ' || EXCLUDED.reason END,
        placed_by = CASE WHEN h.placed_by = EXCLUDED.placed_by THEN h.placed_by ELSE h.placed_by || ', ' || EXCLUDED.placed_by END
    RETURNING h.id INTO placed;
    PERFORM ebb.note_subject('hold', policy, (SELECT d.id FROM ebb.deletion d WHERE d.policy = place_hold.policy
        AND d.subject_id = root.id AND d.state IN ('pending', 'warned', 'erasing', 'failed')), by,
        jsonb_build_object('hold', placed, 'reason', reason, 'until', until));
END
$$;

CREATE OR REPLACE FUNCTION ebb.lift_hold(policy text, id text, by text DEFAULT current_user) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog SET timezone = 'UTC' AS $$
#variable_conflict use_column
DECLARE
    root record;
    opened uuid;
    lifted bigint;
BEGIN
    PERFORM FROM ebb.deletion d WHERE d.policy = lift_hold.policy AND d.subject_id = lift_hold.id
        AND d.state IN ('pending', 'warned', 'erasing', 'failed') FOR UPDATE;
    root := ebb.touch_subject(policy, 'look', id, NULL, NULL);
    UPDATE ebb.hold h SET lifted_at = ebb.now(), lifted_by = by
    WHERE h.policy = lift_hold.policy AND h.subject_id = root.id AND h.lifted_at IS NULL
    RETURNING h.id INTO lifted;
    IF lifted IS NULL THEN
        RAISE EXCEPTION 'subject % of policy % is not on hold', quote_literal(id), policy USING ERRCODE = 'no_data_found';
    END IF;
    UPDATE ebb.deletion d SET blocked = NULL, next_try_at = NULL
    WHERE d.policy = lift_hold.policy AND d.subject_id = root.id AND d.state IN ('pending', 'warned', 'erasing')
    RETURNING d.id INTO opened;
    PERFORM ebb.note_subject('release', policy, opened, by, jsonb_build_object('hold', lifted));
END
$$;
