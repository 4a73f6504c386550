-- Subjects, more closely: noticed at once, with rows that have a term of their own, and looked at once more when they are gone.

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

-- Rows with a term of their own: whether the term of a row of a policy that counts from a moment is over by today's policy;
-- or only its floor. Null where the moment is. For a role that may not read Ebb's tables.
CREATE FUNCTION ebb.is_over(policy text, tenant text, moment timestamptz, floor_only boolean) RETURNS boolean
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET timezone = 'UTC' AS $$
    SELECT ebb.retained_until($1, $2, $3, $4) <= ebb.now()
$$;

-- Links without a foreign key, looked at once more: a transaction that was under way when a subject was erased may add a
-- row for it (an order under its e-mail address) that no constraint refuses. The values of the links are kept until every
-- such transaction has ended, closed with a key outside the database.
CREATE TABLE ebb.late_link (
    id              bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    policy          text        NOT NULL,
    deletion        uuid        NOT NULL,
    horizon         bigint      NOT NULL,                    -- transactions from here on began after the erasure
    sealed          bytea       NOT NULL
);
CREATE INDEX late_link_next ON ebb.late_link (policy, horizon, id);
