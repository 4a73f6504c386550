-- What people see and ask of subjects: holds that follow their subject and say later whose they were, links that nobody reads who only
-- looks.

-- The deletion that erased whom the hold was on: its record has the pseudonym, when the subject's id is gone.
ALTER TABLE ebb.hold ADD COLUMN deletion uuid;

-- The key of a subject's row changes: what is open, held or scheduled for it goes along, in the same transaction.
CREATE FUNCTION ebb.move_subject(policy text, former text, id text) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET lock_timeout = '200ms' AS $$
BEGIN
    UPDATE ebb.deletion d SET subject_id = $3
    WHERE d.policy = $1 AND d.subject_id = $2 AND d.state IN ('pending', 'warned', 'erasing', 'failed');
    UPDATE ebb.deletion d SET subject_id = $3 WHERE d.policy = $1 AND d.subject_id = $2 AND d.state = 'restored';
    UPDATE ebb.hold h SET subject_id = $3 WHERE h.policy = $1 AND h.subject_id = $2;
    UPDATE ebb.event e SET subject_id = $3 WHERE e.subject_policy = $1 AND e.subject_id = $2;
    UPDATE ebb.event_history e SET subject_id = $3 WHERE e.subject_policy = $1 AND e.subject_id = $2;
    UPDATE ebb.recurring r SET subject_id = $3 WHERE r.subject_policy = $1 AND r.subject_id = $2;
END
$$;

-- As before; whoever is on hold is not marked: the chore that marks finds them when the hold has ended.
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
    IF isfinite($3) AND NOT EXISTS (SELECT FROM ebb.hold h WHERE h.policy = $1 AND h.subject_id = $2 AND h.lifted_at IS NULL
                                    AND (h.until IS NULL OR h.until > ebb.now())) THEN
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

-- As before; nobody's name is the session's. A second hold never shortens the first.
CREATE OR REPLACE FUNCTION ebb.place_hold(policy text, id text, reason text, until timestamptz DEFAULT NULL,
                                          by text DEFAULT current_user) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET timezone = 'UTC' AS $$
#variable_conflict use_column
DECLARE
    root record;
    placed bigint;
    who text := COALESCE(by, session_user);
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
    VALUES (policy, root.id, reason, until, ebb.now(), who)
    ON CONFLICT (policy, subject_id) WHERE lifted_at IS NULL
    DO UPDATE SET until = CASE WHEN h.until IS NOT NULL AND EXCLUDED.until IS NOT NULL THEN GREATEST(h.until, EXCLUDED.until) END,
        reason = CASE WHEN h.reason = EXCLUDED.reason THEN h.reason ELSE h.reason || '; ' || EXCLUDED.reason END,
        placed_by = CASE WHEN h.placed_by = EXCLUDED.placed_by THEN h.placed_by ELSE h.placed_by || ', ' || EXCLUDED.placed_by END
    RETURNING h.id INTO placed;
    PERFORM ebb.note_subject('hold', policy, (SELECT d.id FROM ebb.deletion d WHERE d.policy = place_hold.policy
        AND d.subject_id = root.id AND d.state IN ('pending', 'warned', 'erasing', 'failed')), who,
        jsonb_build_object('hold', placed, 'reason', reason, 'until', until));
END
$$;

-- As before; a hold whose subject's row is not there any more can be lifted too, and whoever was soft-deleted under the hold is marked
-- soon.
CREATE OR REPLACE FUNCTION ebb.lift_hold(policy text, id text, by text DEFAULT current_user) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET timezone = 'UTC' AS $$
#variable_conflict use_column
DECLARE
    root record;
    named text;
    opened uuid;
    lifted bigint;
BEGIN
    PERFORM FROM ebb.deletion d WHERE d.policy = lift_hold.policy AND d.subject_id = lift_hold.id
        AND d.state IN ('pending', 'warned', 'erasing', 'failed') FOR UPDATE;
    root := ebb.touch_subject(policy, 'look', id, NULL, NULL);
    named := COALESCE(root.id, (ebb.touch_subject(policy, 'name', id, NULL, NULL)).id);
    UPDATE ebb.hold h SET lifted_at = ebb.now(), lifted_by = by
    WHERE h.policy = lift_hold.policy AND h.subject_id = named AND h.lifted_at IS NULL
    RETURNING h.id INTO lifted;
    IF lifted IS NULL THEN
        RAISE EXCEPTION 'subject % of policy % is not on hold', quote_literal(id), policy USING ERRCODE = 'no_data_found';
    END IF;
    UPDATE ebb.deletion d SET blocked = NULL, next_try_at = NULL
    WHERE d.policy = lift_hold.policy AND d.subject_id = named AND d.state IN ('pending', 'warned', 'erasing')
    RETURNING d.id INTO opened;
    IF opened IS NULL AND root.deleted_at IS NOT NULL THEN
        UPDATE ebb.unit u SET triggered = true WHERE u.policy = lift_hold.policy AND u.chore = 'mark';
        PERFORM pg_notify('ebb', '');
    END IF;
    PERFORM ebb.note_subject('release', policy, opened, by, jsonb_build_object('hold', lifted));
END
$$;

-- The link in a warning acts for whoever was warned. Once it was sent nobody needs it here.
CREATE FUNCTION ebb.hide_link() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF starts_with(NEW.body, '{') AND EXISTS (SELECT FROM ebb.warning w WHERE w.event = NEW.id) THEN
        NEW.body := jsonb_set(NEW.body::jsonb, '{data,data,restore_url}', '"(hidden)"', false)::text;
    END IF;
    RETURN NEW;
END
$$;
CREATE TRIGGER hide_link BEFORE INSERT ON ebb.event_history
    FOR EACH ROW WHEN (NEW.subject_policy IS NOT NULL AND NEW.state = 'done') EXECUTE FUNCTION ebb.hide_link();
UPDATE ebb.event_history h SET body = jsonb_set(h.body::jsonb, '{data,data,restore_url}', '"(hidden)"', false)::text
FROM ebb.warning w WHERE w.event = h.id AND h.state = 'done' AND starts_with(h.body, '{');

CREATE OR REPLACE VIEW ebb.v_events AS
SELECT COALESCE(e.recurring, e.id) AS event, e.id AS occurrence, e.sink,
       CASE WHEN e.lease_until > clock_timestamp() THEN 'running' WHEN e.attempts > 0 THEN 'failed' ELSE 'pending' END AS state,
       e.due_at, e.ready_at, NULL::timestamptz AS finished_at, e.attempts, e.token AS version, e.max_late, e.dedupe_key,
       e.subject_policy, e.subject_id, e.node, e.error AS last_error, e.response,
       CASE WHEN e.subject_policy IS NOT NULL AND starts_with(e.body, '{') AND EXISTS (SELECT FROM ebb.warning w WHERE w.event = e.id)
            THEN jsonb_set(e.body::jsonb, '{data,data,restore_url}', '"(hidden)"', false)::text ELSE e.body END AS body, e.created_at
FROM ebb.event e
UNION ALL
SELECT COALESCE(h.recurring, h.id), h.id, h.sink, h.state, h.due_at, NULL, h.finished_at, h.attempts, h.token, h.max_late, h.dedupe_key,
       h.subject_policy, h.subject_id, h.node, h.error, h.response,
       CASE WHEN h.subject_policy IS NOT NULL AND starts_with(h.body, '{') AND EXISTS (SELECT FROM ebb.warning w WHERE w.event = h.id)
            THEN jsonb_set(h.body::jsonb, '{data,data,restore_url}', '"(hidden)"', false)::text ELSE h.body END, h.created_at
FROM ebb.event_history h;
