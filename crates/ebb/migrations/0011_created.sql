-- resources: a creator that was late and somebody who refers to its resource in time do not undo each other.
--
-- The resource exists now. True: it lives, also when it was condemned and a reference has rescued it. False: it was given
-- up, from here on for good (an incref is told that it is gone), and the caller drops what it made or leaves it to Ebb:
-- the dropper while it is claimed, the sweeper afterwards. An unknown name is false too.
-- Lock: the row, of a non-key UPDATE, which an incref does not block; a condemned one FOR UPDATE, and only then, in the
-- next statement, references.
CREATE OR REPLACE FUNCTION ebb.created(resources text, name text, store_id text DEFAULT NULL) RETURNS boolean
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    found_id bigint;
    rescued  boolean;
BEGIN
    PERFORM ebb.resource_policy($1);
    UPDATE ebb.resource r
    SET state = 'live', store_id = coalesce($3, r.store_id), created_at = coalesce(r.created_at, ebb.clock())
    WHERE r.policy = $1 AND r.name = $2 AND r.state IN ('creating', 'live');
    IF FOUND THEN
        RETURN true;
    END IF;
    SELECT r.id INTO found_id FROM ebb.resource r
    WHERE r.policy = $1 AND r.name = $2 AND r.state = 'condemned' FOR UPDATE;
    IF found_id IS NULL THEN
        -- Rescued between the two statements, or given up.
        RETURN EXISTS (SELECT FROM ebb.resource r WHERE r.policy = $1 AND r.name = $2 AND r.state = 'live');
    END IF;
    rescued := EXISTS (SELECT FROM ebb.reference f WHERE f.resource = found_id);
    UPDATE ebb.resource r
    SET state = CASE WHEN rescued THEN 'live' ELSE 'dropping' END,
        condemned_at = CASE WHEN rescued THEN NULL ELSE r.condemned_at END,
        dropping_at = CASE WHEN rescued THEN NULL ELSE ebb.clock() END,
        store_id = coalesce($3, r.store_id), created_at = coalesce(r.created_at, ebb.clock())
    WHERE r.id = found_id;
    IF NOT rescued THEN
        PERFORM ebb.resource_nudge($1);
    END IF;
    RETURN rescued;
END
$$;
