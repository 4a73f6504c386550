-- Retain: subjects whose deletion is open, holds that stop it, overrides of tenants, and the tree that was approved.
-- Whoever changes a deletion locks its row first, then the subject's own row; conditions on other rows are looked at
-- in a statement after the locks.

-- What nodes and functions need to know of a policy, written with it. tree is what `ebb apply` approved.
CREATE TABLE ebb.retain (
    policy          text        PRIMARY KEY,
    relation        text        NOT NULL,
    subjects        boolean     NOT NULL,                    -- with a soft delete; otherwise rows by their age
    grace           interval    NOT NULL,
    floor           interval    NOT NULL,
    zone            text        NOT NULL,
    tenant_override boolean     NOT NULL,
    subject_call    text,                                    -- the function that touches the user's table
    tree            jsonb,
    tables          text[]      NOT NULL DEFAULT '{}',       -- every table of the tree
    approved_at     timestamptz NOT NULL DEFAULT clock_timestamp(),
    approved_by     text        NOT NULL
);

CREATE TABLE ebb.tenant_override (
    policy          text        NOT NULL,
    tenant          text        NOT NULL,
    retention       interval,                                -- null: the policy's
    spec            jsonb       NOT NULL,
    enabled         boolean     NOT NULL DEFAULT true,       -- false: nothing of this tenant is erased
    changed_at      timestamptz NOT NULL DEFAULT clock_timestamp(),
    changed_by      text        NOT NULL,
    PRIMARY KEY (policy, tenant)
);

CREATE TABLE ebb.deletion (
    id              uuid        PRIMARY KEY DEFAULT gen_random_uuid(),
    policy          text        NOT NULL,
    subject_id      text,                                    -- null once erased
    tenant          text,
    state           text        NOT NULL DEFAULT 'pending'
                    CHECK (state IN ('pending', 'warned', 'erasing', 'erased', 'restored', 'failed')),
    deleted_at      timestamptz NOT NULL,
    due_at          timestamptz NOT NULL,                    -- by the policy when it was last looked at
    expedited       boolean     NOT NULL DEFAULT false,      -- a verified request: without the grace
    not_before      timestamptz,                             -- a warning or a release moved it
    opened_at       timestamptz NOT NULL DEFAULT clock_timestamp(),
    opened_by       text,
    attempts        integer     NOT NULL DEFAULT 0,
    next_try_at     timestamptz,
    error           text,                                    -- why the last attempt failed
    blocked         text,                                    -- why it waits although it is due
    rows            bigint,
    parts           jsonb       NOT NULL DEFAULT '{}',       -- rows by table that went before the last transaction
    closed_at       timestamptz,
    closed_by       text,
    CHECK (state <> 'erased' OR subject_id IS NULL)
);
CREATE UNIQUE INDEX deletion_open ON ebb.deletion (policy, subject_id)
    WHERE state IN ('pending', 'warned', 'erasing', 'failed');
CREATE INDEX deletion_due ON ebb.deletion (policy, due_at, id) WHERE state IN ('pending', 'warned');
CREATE INDEX deletion_claimed ON ebb.deletion (policy, id) WHERE state = 'erasing';
CREATE INDEX deletion_subject ON ebb.deletion (policy, subject_id, opened_at);

CREATE TABLE ebb.hold (
    id              bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    policy          text        NOT NULL,
    subject_id      text,                                    -- null once the subject is erased
    reason          text        NOT NULL,
    until           timestamptz,
    placed_at       timestamptz NOT NULL,
    placed_by       text        NOT NULL,
    lifted_at       timestamptz,
    lifted_by       text
);
CREATE UNIQUE INDEX hold_active ON ebb.hold (policy, subject_id) WHERE lifted_at IS NULL;
CREATE INDEX hold_subject ON ebb.hold (policy, subject_id);

-- A moment and a term after it: months on the zone's calendar, days of 24 hours, whatever the session's zone.
CREATE FUNCTION ebb.later(moment timestamptz, term interval, zone text) RETURNS timestamptz
LANGUAGE sql STABLE PARALLEL SAFE AS $$
    SELECT CASE WHEN extract(year FROM term) = 0 AND extract(month FROM term) = 0
                THEN moment + pg_catalog.make_interval(secs => extract(epoch FROM term)::float8)
                ELSE (((moment + pg_catalog.make_interval(secs => (extract(epoch FROM term - pg_catalog.make_interval(
                           months => (extract(year FROM term) * 12 + extract(month FROM term))::int)))::float8))
                       AT TIME ZONE zone)
                      + pg_catalog.make_interval(months => (extract(year FROM term) * 12 + extract(month FROM term))::int))
                     AT TIME ZONE zone END
$$;

-- When a subject may be erased by today's policy: the floor always, the tenant's retention or the default besides.
CREATE FUNCTION ebb.retained_until(policy text, tenant text, deleted_at timestamptz, expedited boolean)
RETURNS timestamptz LANGUAGE sql STABLE PARALLEL SAFE AS $$
    SELECT CASE WHEN o.enabled IS FALSE THEN 'infinity'::timestamptz
                ELSE GREATEST(ebb.later($3, r.floor, r.zone),
                              CASE WHEN NOT $4 THEN ebb.later($3, COALESCE(o.retention, r.grace), r.zone) END) END
    FROM ebb.retain r
    LEFT JOIN ebb.tenant_override o ON o.policy = r.policy AND o.tenant = $2 AND r.tenant_override
    WHERE r.policy = $1
$$;

-- Locks a subject's own row and reads it, or changes it: op is look, delete, restore or due.
CREATE FUNCTION ebb.touch_subject(policy text, op text, subject text, moment timestamptz, due timestamptz,
                                  OUT id text, OUT deleted_at timestamptz, OUT tenant text)
LANGUAGE plpgsql SET search_path = pg_catalog AS $$
DECLARE
    call text;
BEGIN
    SELECT r.subject_call INTO call FROM ebb.retain r JOIN ebb.policy p ON p.kind = 'retain' AND p.name = r.policy
    WHERE r.policy = touch_subject.policy AND r.subjects AND p.enabled;
    IF call IS NULL THEN
        RAISE EXCEPTION 'there is no retain policy % with subjects', quote_literal(policy)
            USING ERRCODE = 'undefined_object', HINT = 'ebb policy list shows those there are';
    END IF;
    BEGIN
        EXECUTE format('SELECT * FROM ebb.%I($1, $2, $3, $4)', call) INTO id, deleted_at, tenant
            USING op, subject, moment, due;
    EXCEPTION WHEN invalid_text_representation OR numeric_value_out_of_range OR invalid_parameter_value THEN
        RAISE EXCEPTION 'no subject of % can have the id %: %', policy, quote_literal(subject), SQLERRM
            USING ERRCODE = 'invalid_text_representation',
                  HINT = 'an id is the primary key as text; of several columns a JSON array of texts';
    END;
END
$$;

CREATE FUNCTION ebb.note_subject(action text, policy text, deletion uuid, by_name text, details jsonb DEFAULT '{}') RETURNS void
LANGUAGE sql SET search_path = pg_catalog AS $$
    INSERT INTO ebb.audit (action, policy, policy_version, relation, rows, by_name, details)
    SELECT $1, $2, p.version, r.relation, 0, $4, jsonb_strip_nulls(jsonb_build_object('deletion', $3) || $5)
    FROM ebb.retain r LEFT JOIN ebb.policy p ON p.kind = 'retain' AND p.name = r.policy WHERE r.policy = $2
$$;

CREATE FUNCTION ebb.delete_subject(policy text, id text, by text DEFAULT current_user) RETURNS timestamptz
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog SET timezone = 'UTC' AS $$
#variable_conflict use_column
DECLARE
    root record;
    opened ebb.deletion;
    moment timestamptz := ebb.now();
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
    IF FOUND THEN
        RETURN opened.due_at;
    END IF;
    moment := COALESCE(root.deleted_at, moment);
    INSERT INTO ebb.deletion (policy, subject_id, tenant, deleted_at, due_at, opened_by)
    VALUES (policy, root.id, root.tenant, moment, ebb.retained_until(policy, root.tenant, moment, false), by)
    RETURNING * INTO opened;
    PERFORM ebb.touch_subject(policy, 'delete', root.id, moment, opened.due_at);
    PERFORM ebb.note_subject('delete', policy, opened.id, by, jsonb_build_object('due_at', opened.due_at));
    RETURN opened.due_at;
END
$$;

CREATE FUNCTION ebb.restore_subject(policy text, id text, by text DEFAULT current_user) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog SET timezone = 'UTC' AS $$
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
    PERFORM ebb.touch_subject(policy, 'restore', root.id, ebb.now(), NULL);
    PERFORM ebb.note_subject('restore', policy, opened.id, by);
    RETURN true;
END
$$;

CREATE FUNCTION ebb.erase_subject(policy text, id text, by text DEFAULT current_user) RETURNS timestamptz
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
    SET expedited = true, not_before = NULL, next_try_at = NULL,
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

CREATE FUNCTION ebb.place_hold(policy text, id text, reason text, until timestamptz DEFAULT NULL,
                               by text DEFAULT current_user) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog SET timezone = 'UTC' AS $$
#variable_conflict use_column
DECLARE
    root record;
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
    INSERT INTO ebb.hold AS h (policy, subject_id, reason, until, placed_at, placed_by)
    VALUES (policy, root.id, reason, until, ebb.now(), by)
    ON CONFLICT (policy, subject_id) WHERE lifted_at IS NULL
    DO UPDATE SET reason = EXCLUDED.reason, until = EXCLUDED.until, placed_by = EXCLUDED.placed_by;
    PERFORM ebb.note_subject('hold', policy, (SELECT d.id FROM ebb.deletion d WHERE d.policy = place_hold.policy
        AND d.subject_id = root.id AND d.state IN ('pending', 'warned', 'erasing', 'failed')), by,
        jsonb_build_object('reason', reason, 'until', until));
END
$$;

CREATE FUNCTION ebb.lift_hold(policy text, id text, by text DEFAULT current_user) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog SET timezone = 'UTC' AS $$
#variable_conflict use_column
DECLARE
    root record;
    opened uuid;
BEGIN
    PERFORM FROM ebb.deletion d WHERE d.policy = lift_hold.policy AND d.subject_id = lift_hold.id
        AND d.state IN ('pending', 'warned', 'erasing', 'failed') FOR UPDATE;
    root := ebb.touch_subject(policy, 'look', id, NULL, NULL);
    UPDATE ebb.hold h SET lifted_at = ebb.now(), lifted_by = by
    WHERE h.policy = lift_hold.policy AND h.subject_id = root.id AND h.lifted_at IS NULL;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'subject % of policy % is not on hold', quote_literal(id), policy USING ERRCODE = 'no_data_found';
    END IF;
    UPDATE ebb.deletion d SET blocked = NULL, next_try_at = NULL
    WHERE d.policy = lift_hold.policy AND d.subject_id = root.id AND d.state IN ('pending', 'warned', 'erasing')
    RETURNING d.id INTO opened;
    PERFORM ebb.note_subject('release', policy, opened, by);
END
$$;

-- Deletions, open and closed. An erased subject has no id any more.
CREATE VIEW ebb.v_deletions AS
SELECT d.policy,
       d.subject_id,
       d.id AS deletion,
       d.tenant,
       d.state,
       d.deleted_at,
       d.due_at,
       d.expedited,
       h.id IS NOT NULL AS on_hold,
       h.reason AS hold_reason,
       h.until AS hold_until,
       d.blocked,
       d.attempts,
       d.next_try_at,
       d.error,
       d.rows,
       d.opened_at,
       d.closed_at
FROM ebb.deletion d
LEFT JOIN ebb.hold h ON h.policy = d.policy AND h.subject_id = d.subject_id AND h.lifted_at IS NULL
                    AND (h.until IS NULL OR h.until > ebb.now());
COMMENT ON VIEW ebb.v_deletions IS 'Deletions of subjects: how each stands, when it is due, what holds it up';

-- Finding the proof of one erasure: by pseudonym (receipt, replay) and by deletion.
CREATE INDEX audit_erased_subject ON ebb.audit (subject) WHERE action = 'erase';
CREATE INDEX audit_erased_deletion ON ebb.audit ((details ->> 'deletion')) WHERE action = 'erase';
