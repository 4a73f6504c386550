-- Holds that everybody sees, and reasons to wait that end with what they were about.

-- Why a deletion waits, as the last run noted it, unless that was a hold which is over by now: its own, or anybody's whose rows it shares.
CREATE FUNCTION ebb.still_blocked(blocked text, policy text, subject text) RETURNS text
LANGUAGE sql STABLE STRICT SET search_path = pg_catalog, pg_temp AS $$
    SELECT CASE
        WHEN starts_with($1, 'on hold: ') AND NOT EXISTS (
            SELECT FROM ebb.hold h WHERE h.policy = $2 AND h.subject_id = $3 AND h.lifted_at IS NULL
            AND (h.until IS NULL OR h.until > ebb.now())) THEN NULL
        WHEN starts_with($1, 'rows of a subject on hold ') AND NOT EXISTS (
            SELECT FROM ebb.hold h WHERE h.lifted_at IS NULL AND (h.until IS NULL OR h.until > ebb.now())) THEN NULL
        ELSE $1 END
$$;

-- As before; what is over holds nothing up, and since when somebody is on hold.
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
       COALESCE(ebb.still_blocked(d.blocked, d.policy, d.subject_id),
                CASE WHEN d.state IN ('pending', 'warned') AND NOT d.expedited AND r.warn_before <> '{}' AND NOT r.proceed
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
       w.error AS warning_error,
       h.placed_at AS hold_since
FROM ebb.deletion d
LEFT JOIN ebb.retain r ON r.policy = d.policy
LEFT JOIN ebb.warning w ON w.deletion = d.id AND w.step = 0
LEFT JOIN ebb.hold h ON h.policy = d.policy AND h.subject_id = d.subject_id AND h.lifted_at IS NULL
                    AND (h.until IS NULL OR h.until > ebb.now());

-- Holds in force, whether their subjects are deleted or not. deletion and state: of the open deletion, where there is one.
CREATE VIEW ebb.v_holds AS
SELECT h.id AS hold, h.policy, h.subject_id, h.reason, h.placed_at AS since, h.until, h.placed_by, d.id AS deletion, d.state
FROM ebb.hold h
LEFT JOIN ebb.deletion d ON d.policy = h.policy AND d.subject_id = h.subject_id AND d.state IN ('pending', 'warned', 'erasing', 'failed')
WHERE h.lifted_at IS NULL AND h.subject_id IS NOT NULL AND (h.until IS NULL OR h.until > ebb.now());
COMMENT ON VIEW ebb.v_holds IS 'Subjects on hold: why, since when, until when';

-- Leads to why a floor went down.
CREATE INDEX audit_floor ON ebb.audit (policy, id) WHERE action = 'floor';
