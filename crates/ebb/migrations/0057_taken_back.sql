-- What is taken back is not tried again: also what a node holds at this moment.

-- Events that somebody cancelled while a node held them. Their own row stays as it is, so that neither waits for the other; whoever
-- writes down that an attempt failed, that none was made, or that a lease ran out, ends them instead. What was delivered after all stays
-- delivered.
CREATE TABLE ebb.event_cancel (
    id              uuid        PRIMARY KEY
);

-- As before; one that a node holds at this moment stays until the node has let go of it, and is not tried again.
CREATE OR REPLACE FUNCTION ebb.event_end(ids uuid[], held boolean, blank boolean) RETURNS bigint
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off AS $$
#variable_conflict use_column
DECLARE
    ended bigint;
BEGIN
    FOR attempt IN 1 .. 2 LOOP
        BEGIN
            WITH gone AS (
                DELETE FROM ebb.event e
                WHERE e.id = ANY ($1) AND ($2 OR e.lease_until IS NULL OR e.lease_until <= clock_timestamp())
                RETURNING e.*
            ), kept AS (
                INSERT INTO ebb.event_history (id, recurring, sink, state, due_at, finished_at, token, attempts, created_at, max_late,
                                               dedupe_key, subject_policy, subject_id, node, error, response, body)
                SELECT g.id, g.recurring, g.sink, 'cancelled', g.due_at, ebb.now(), g.token + 1, g.attempts, g.created_at, g.max_late,
                       CASE WHEN NOT $3 THEN g.dedupe_key END, g.subject_policy, CASE WHEN NOT $3 THEN g.subject_id END, g.node,
                       CASE WHEN NOT $3 THEN g.error END, CASE WHEN NOT $3 THEN g.response END, CASE WHEN $3 THEN '' ELSE g.body END
                FROM gone g
                RETURNING 1
            )
            SELECT count(*) INTO ended FROM kept;
            EXIT;
        EXCEPTION WHEN check_violation THEN
            -- No node has made today's partition.
            IF attempt = 2 THEN
                RAISE;
            END IF;
            PERFORM ebb.event_history_extend();
        END;
    END LOOP;
    INSERT INTO ebb.event_cancel (id)
    SELECT e.id FROM ebb.event e WHERE e.id = ANY ($1) ON CONFLICT DO NOTHING;
    RETURN ended;
END
$$;

-- As before. True: it will not be delivered (any more). False: it was, nobody knows it, or it is being delivered at this moment; then no
-- other attempt is made should this one fail.
CREATE OR REPLACE FUNCTION ebb.cancel(event uuid) RETURNS boolean
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off AS $$
#variable_conflict use_column
BEGIN
    UPDATE ebb.recurring r SET next_at = NULL, cancelled_at = ebb.now(), version = r.version + 1
    WHERE r.id = $1 AND r.cancelled_at IS NULL AND r.policy IS NULL;
    IF FOUND THEN
        PERFORM ebb.event_end(ARRAY(SELECT e.id FROM ebb.event e WHERE e.recurring = $1), false, false);
        RETURN true;
    END IF;
    RETURN ebb.event_end(ARRAY[$1], false, false) > 0;
END
$$;

-- Receivers that nodes count as dead: since when (by the time of policies), and when that was last found out (by the server's clock). A row
-- goes with the first delivery of any node.
CREATE TABLE ebb.breaker (
    sink            text        COLLATE "C" PRIMARY KEY,
    since           timestamptz NOT NULL,
    tried_at        timestamptz NOT NULL
);

-- Since when the receiver of a sink has taken nothing, as far as is known; what nobody has tried for an hour is not known.
CREATE FUNCTION ebb.dead_since(sink text) RETURNS timestamptz LANGUAGE sql STABLE
RETURN (SELECT b.since FROM ebb.breaker b WHERE b.sink = dead_since.sink AND b.tried_at > clock_timestamp() - interval '1 hour');

-- As before; one that came too late because its receiver was dead, from before it was to be sent until it could not be sent any more, is
-- one that could not be delivered: where the policy proceeds without, it does. Where it stops, the warning is made anew until the
-- receiver is back.
CREATE OR REPLACE FUNCTION ebb.warning_ended() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF NEW.state = 'done' THEN
        UPDATE ebb.warning w SET accepted_at = NEW.finished_at, failed_at = NULL, error = NULL
        WHERE w.event = NEW.id AND w.accepted_at IS NULL;
    ELSIF NEW.state = 'dead' THEN
        UPDATE ebb.warning w SET failed_at = NEW.finished_at, error = left(NEW.error, 500)
        WHERE w.event = NEW.id AND w.accepted_at IS NULL;
    ELSIF NEW.state = 'skipped' AND ebb.dead_since(NEW.sink) <= NEW.due_at
          AND EXISTS (SELECT FROM ebb.retain r WHERE r.policy = NEW.subject_policy AND r.proceed) THEN
        UPDATE ebb.warning w SET failed_at = NEW.finished_at, error = 'its receiver took nothing from before it was to be sent until it was too late'
        WHERE w.event = NEW.id AND w.accepted_at IS NULL;
    ELSE
        DELETE FROM ebb.warning w WHERE w.event = NEW.id AND w.accepted_at IS NULL;
    END IF;
    RETURN NULL;
END
$$;
