-- Marking at once: what a trigger on a root table calls when the application soft-deletes a subject itself, or takes that
-- back. The trigger catches whatever goes wrong here, so that the application's statement neither fails nor waits for long,
-- and leaves it to the marking chore. Locks: the subject's row is the caller's; a deletion that somebody else has locked is passed by, so
-- that two who lock in different orders never wait for each other.
CREATE FUNCTION ebb.mark_subject(policy text, id text, moment timestamptz, tenant text, mirrors boolean) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET timezone = 'UTC' SET lock_timeout = '200ms' AS $$
#variable_conflict use_column
DECLARE
    opened uuid;
    due timestamptz;
BEGIN
    IF $3 IS NULL THEN
        SELECT d.id INTO opened FROM ebb.deletion d
        WHERE d.policy = $1 AND d.subject_id = $2 AND d.state IN ('pending', 'warned', 'failed') FOR UPDATE SKIP LOCKED;
        IF FOUND THEN
            UPDATE ebb.deletion d
            SET state = 'restored', closed_at = clock_timestamp(), closed_by = 'application', blocked = NULL, error = NULL
            WHERE d.id = opened;
            PERFORM ebb.note_subject('restore', $1, opened, 'application');
        END IF;
    ELSIF isfinite($3) THEN
        INSERT INTO ebb.deletion (policy, subject_id, tenant, deleted_at, due_at, opened_by)
        VALUES ($1, $2, $4, $3, ebb.retained_until($1, $4, $3, false), 'application')
        ON CONFLICT (policy, subject_id) WHERE state IN ('pending', 'warned', 'erasing', 'failed') DO NOTHING
        RETURNING ebb.deletion.id, ebb.deletion.due_at INTO opened, due;
        IF opened IS NOT NULL THEN
            IF $5 THEN
                PERFORM ebb.touch_subject($1, 'mark', $2, $3, due);
            END IF;
            PERFORM ebb.note_subject('mark', $1, opened, 'application', jsonb_build_object('due_at', due));
        END IF;
    END IF;
END
$$;
