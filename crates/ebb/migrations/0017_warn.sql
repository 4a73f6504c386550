-- Warnings: nobody who is to be warned is erased before a sink has accepted word of it. A warning is an event of the
-- schedule duty, written with the deletion's state; what became of the event is written here by the transaction that
-- ends it, so that no death between sending and remembering can lose it.
-- Locks go from the deletion to its events to its warnings, never the other way: what ends an event touches the warning
-- alone, and the deletion's due time follows later, under the deletion's lock.

ALTER TABLE ebb.retain ADD COLUMN warn_before interval[] NOT NULL DEFAULT '{}',    -- the warning, then reminders
                       ADD COLUMN proceed boolean NOT NULL DEFAULT false;          -- when a warning cannot be delivered
ALTER TABLE ebb.tenant_override ADD COLUMN warn_before interval[];                 -- null: the policy's

CREATE TABLE ebb.warning (
    deletion        uuid        NOT NULL,
    step            integer     NOT NULL,                    -- 0: deletion_warning; then deletion_reminder
    policy          text        NOT NULL,
    event           uuid        NOT NULL,
    before          interval    NOT NULL,                    -- what it promises from its acceptance on
    send_at         timestamptz NOT NULL,
    accepted_at     timestamptz,                             -- the sink took it
    failed_at       timestamptz,                             -- the last attempt failed
    error           text,
    settled         boolean     NOT NULL DEFAULT false,      -- the deletion's due time knows of the acceptance
    PRIMARY KEY (deletion, step)
);
CREATE UNIQUE INDEX warning_event ON ebb.warning (event);
CREATE INDEX warning_under_way ON ebb.warning (policy, deletion) WHERE accepted_at IS NULL AND failed_at IS NULL;
CREATE INDEX warning_unsettled ON ebb.warning (policy, deletion) WHERE accepted_at IS NOT NULL AND NOT settled;
CREATE INDEX warning_failed ON ebb.warning (policy, deletion) WHERE failed_at IS NOT NULL AND accepted_at IS NULL AND step = 0;

-- How long before its erasure a subject is warned, by its tenant's terms or the policy's; null: not at all.
CREATE FUNCTION ebb.warn_before(policy text, tenant text) RETURNS interval[]
LANGUAGE sql STABLE PARALLEL SAFE AS $$
    SELECT COALESCE(o.warn_before, r.warn_before)
    FROM ebb.retain r
    LEFT JOIN ebb.tenant_override o ON o.policy = r.policy AND o.tenant = $2 AND r.tenant_override
    WHERE r.policy = $1 AND r.warn_before <> '{}'
$$;

-- An event that was a warning has ended. One that was taken back, or came too late to be true, never was.
CREATE FUNCTION ebb.warning_ended() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF NEW.state = 'done' THEN
        UPDATE ebb.warning w SET accepted_at = NEW.finished_at, failed_at = NULL, error = NULL
        WHERE w.event = NEW.id AND w.accepted_at IS NULL;
    ELSIF NEW.state = 'dead' THEN
        UPDATE ebb.warning w SET failed_at = NEW.finished_at, error = left(NEW.error, 500)
        WHERE w.event = NEW.id AND w.accepted_at IS NULL;
    ELSE
        DELETE FROM ebb.warning w WHERE w.event = NEW.id AND w.accepted_at IS NULL;
    END IF;
    RETURN NULL;
END
$$;
CREATE TRIGGER warning_ended AFTER INSERT ON ebb.event_history
    FOR EACH ROW WHEN (NEW.subject_policy IS NOT NULL) EXECUTE FUNCTION ebb.warning_ended();

-- Takes back the warnings of a deletion that no sink has yet; one that is being sent at this moment stays. The caller
-- has the deletion's lock.
CREATE FUNCTION ebb.withdraw_warnings(deletion uuid) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    events uuid[] := ARRAY(SELECT w.event FROM ebb.warning w WHERE w.deletion = $1 AND w.accepted_at IS NULL);
BEGIN
    IF events <> '{}' THEN
        PERFORM ebb.event_end(events, false, false);
        UPDATE ebb.deletion d SET state = 'pending'
        WHERE d.id = $1 AND d.state = 'warned' AND NOT EXISTS (SELECT FROM ebb.warning w WHERE w.deletion = $1 AND w.step = 0);
    END IF;
END
$$;

-- Who lives again, or asked to be erased at once, is not warned any more.
CREATE FUNCTION ebb.deletion_needs_no_warning() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM ebb.withdraw_warnings(NEW.id);
    RETURN NULL;
END
$$;
CREATE TRIGGER restored AFTER UPDATE OF state ON ebb.deletion
    FOR EACH ROW WHEN (NEW.state = 'restored' AND OLD.state <> 'restored') EXECUTE FUNCTION ebb.deletion_needs_no_warning();
CREATE TRIGGER expedited AFTER UPDATE OF expedited ON ebb.deletion
    FOR EACH ROW WHEN (NEW.expedited AND NOT OLD.expedited) EXECUTE FUNCTION ebb.deletion_needs_no_warning();

-- A hold stops warnings that are on their way; afterwards they are made anew, with the dates of then.
CREATE FUNCTION ebb.hold_placed() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM ebb.withdraw_warnings(d.id) FROM ebb.deletion d
    WHERE d.policy = NEW.policy AND d.subject_id = NEW.subject_id AND d.state IN ('pending', 'warned');
    RETURN NULL;
END
$$;
CREATE TRIGGER placed AFTER INSERT OR UPDATE OF reason, until ON ebb.hold
    FOR EACH ROW WHEN (NEW.lifted_at IS NULL) EXECUTE FUNCTION ebb.hold_placed();

-- Whoever was not warned when the hold ended has as long from then on as a warning gives.
CREATE FUNCTION ebb.hold_lifted() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    moved record;
BEGIN
    UPDATE ebb.deletion d
    SET not_before = GREATEST(d.not_before, ebb.later(NEW.lifted_at, (ebb.warn_before(d.policy, d.tenant))[1], r.zone)),
        due_at = GREATEST(d.due_at, ebb.later(NEW.lifted_at, (ebb.warn_before(d.policy, d.tenant))[1], r.zone))
    FROM ebb.retain r
    WHERE d.policy = NEW.policy AND d.subject_id = NEW.subject_id AND d.state IN ('pending', 'warned') AND NOT d.expedited
      AND r.policy = d.policy AND r.warn_before <> '{}'
      AND NOT EXISTS (SELECT FROM ebb.warning w WHERE w.deletion = d.id AND w.step = 0 AND w.accepted_at IS NOT NULL)
    RETURNING d.policy, d.subject_id, d.due_at INTO moved;
    IF FOUND THEN
        PERFORM ebb.touch_subject(moved.policy, 'due', moved.subject_id, NULL, moved.due_at);
    END IF;
    RETURN NULL;
END
$$;
CREATE TRIGGER lifted AFTER UPDATE OF lifted_at ON ebb.hold
    FOR EACH ROW WHEN (OLD.lifted_at IS NULL AND NEW.lifted_at IS NOT NULL AND NEW.subject_id IS NOT NULL)
    EXECUTE FUNCTION ebb.hold_lifted();

-- Restores what one deletion deleted, and nothing that was deleted again since: restored | used | gone | unknown.
CREATE FUNCTION ebb.restore_deletion(deletion uuid, by text) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET timezone = 'UTC' AS $$
DECLARE
    opened ebb.deletion;
BEGIN
    SELECT * INTO opened FROM ebb.deletion d WHERE d.id = $1 FOR UPDATE;
    IF NOT FOUND THEN
        RETURN 'unknown';
    ELSIF opened.state = 'restored' THEN
        RETURN 'used';
    ELSIF opened.state IN ('erasing', 'erased') THEN
        RETURN 'gone';
    END IF;
    -- It is the only open one of its subject, and its row is locked.
    RETURN CASE WHEN ebb.restore_subject(opened.policy, opened.subject_id, $2) THEN 'restored' ELSE 'gone' END;
END
$$;

-- Deletions, open and closed. An erased subject has no id any more. warning: planned | scheduled | accepted | undeliverable.
CREATE OR REPLACE VIEW ebb.v_deletions AS
SELECT d.policy,
       d.subject_id,
       d.id AS deletion,
       d.tenant,
       d.state,
       d.deleted_at,
       GREATEST(d.due_at, CASE WHEN NOT d.expedited AND d.closed_at IS NULL THEN ebb.later(w.accepted_at, w.before, r.zone) END) AS due_at,
       d.expedited,
       h.id IS NOT NULL AS on_hold,
       h.reason AS hold_reason,
       h.until AS hold_until,
       COALESCE(d.blocked, CASE WHEN d.state IN ('pending', 'warned') AND NOT d.expedited AND r.warn_before <> '{}' AND NOT r.proceed
                                     AND w.accepted_at IS NULL AND w.failed_at IS NOT NULL
                                THEN 'its warning could not be delivered' END) AS blocked,
       d.attempts,
       d.next_try_at,
       d.error,
       d.rows,
       d.opened_at,
       d.closed_at,
       CASE WHEN w.accepted_at IS NOT NULL THEN 'accepted'
            WHEN w.failed_at IS NOT NULL THEN 'undeliverable'
            WHEN w.deletion IS NOT NULL THEN 'scheduled'
            WHEN d.state IN ('pending', 'warned') AND NOT d.expedited AND r.warn_before <> '{}' THEN 'planned' END AS warning,
       w.accepted_at AS warned_at,
       w.error AS warning_error
FROM ebb.deletion d
LEFT JOIN ebb.retain r ON r.policy = d.policy
LEFT JOIN ebb.warning w ON w.deletion = d.id AND w.step = 0
LEFT JOIN ebb.hold h ON h.policy = d.policy AND h.subject_id = d.subject_id AND h.lifted_at IS NULL
                    AND (h.until IS NULL OR h.until > ebb.now());
COMMENT ON VIEW ebb.v_deletions IS 'Deletions of subjects: how each stands, when it is due, what holds it up';
