-- A claim costs a third of what it did: it changes no indexed column and finds room on the same page, so that no index gets an
-- entry for it. Claimed events therefore stay where they are in event_ready, and whoever looks there from the bottom finds
-- those whose lease ran out.
--
-- Invariant: whoever changes ready_at ends the lease; nothing that a node does with a claim changes an indexed column.
DROP INDEX ebb.event_ready, ebb.event_lease;
CREATE INDEX event_ready ON ebb.event (sink, ready_at, id);
ALTER TABLE ebb.event SET (fillfactor = 50);

-- An event, once. The same dedupe key again returns the event that has it and changes nothing, whatever else differs.
-- Locks nothing that another event needs. It asks for sleepers itself, as ebb.event_wake does: a call costs as much as a
-- quarter of an insert.
CREATE OR REPLACE FUNCTION ebb.schedule(sink text, due_at timestamptz, payload jsonb, dedupe_key text DEFAULT NULL,
                                        max_late interval DEFAULT NULL, subject_policy text DEFAULT NULL, subject_id text DEFAULT NULL)
RETURNS uuid LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    new_id uuid := ebb.event_id();
    known  uuid;
BEGIN
    IF $4 IS NOT NULL OR $5 <= interval '0' OR ($6 IS NULL) <> ($7 IS NULL) THEN
        PERFORM ebb.event_refuse($1, $2, $3, $4, $5, $6, $7);
    END IF;
    IF $4 IS NOT NULL THEN
        LOOP
            INSERT INTO ebb.event_key (sink, key, event) VALUES ($1, $4, new_id) ON CONFLICT DO NOTHING;
            EXIT WHEN FOUND;
            SELECT k.event INTO known FROM ebb.event_key k WHERE k.sink = $1 AND k.key = $4;
            IF FOUND THEN
                RETURN known;
            END IF;
        END LOOP;
    END IF;
    -- What can be wrong is asked by the same statement: each one more costs as much as half an insert.
    INSERT INTO ebb.event (id, sink, due_at, ready_at, created_at, max_late, dedupe_key, subject_policy, subject_id, body)
    SELECT new_id, $1, $2, $2, ebb.now(), $5, $4, $6, $7, ebb.event_body(new_id, new_id, $2, $3)
    FROM ebb.policy p
    WHERE p.kind = 'sink' AND p.name = $1 AND p.enabled
      AND $2 >= '1970-01-01Z' AND $2 < '9999-01-01Z' AND octet_length($3::text) <= 1048576;
    IF NOT FOUND THEN
        PERFORM ebb.event_refuse($1, $2, $3, $4, $5, $6, $7);
    END IF;
    IF EXISTS (SELECT FROM ebb.event_sleeper s WHERE s.until > $2 AND s.until > ebb.clock())
       OR current_setting('transaction_isolation') <> 'read committed' THEN
        PERFORM pg_notify('ebb_events', '');
    END IF;
    RETURN new_id;
END
$$;
