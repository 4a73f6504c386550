-- ebb.apply_refs_of expects that what a handler adds does not stand yet, and looks at each pair only where one does: an
-- insert that is ready for conflicts costs nearly twice as much as one that is not. Otherwise as it was.
CREATE OR REPLACE FUNCTION ebb.apply_refs_of(resources text, holder uuid, increfs text[], decrefs text[])
RETURNS TABLE (late text, reason text)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off AS $$
DECLARE
    ids     bigint[];
    usable  bigint[];
    alive   boolean := true;
BEGIN
    PERFORM ebb.resource_policy($1);
    IF cardinality($3) > 0 THEN
        SELECT array_agg(r.id) INTO ids FROM (
            SELECT r.id FROM ebb.resource r WHERE r.policy = $1 AND r.name = ANY ($3) ORDER BY r.policy, r.name FOR KEY SHARE) r;
        PERFORM FROM ebb.holder h WHERE h.id = $2 AND h.expires_at > clock_timestamp() FOR KEY SHARE;
        alive := FOUND;
        -- Only now, in a new statement: what is their state under the lock?
        SELECT array_agg(r.id ORDER BY r.id) INTO usable FROM ebb.resource r
        WHERE r.id = ANY (ids) AND r.state IN ('creating', 'live', 'condemned');
        IF alive THEN
            BEGIN
                INSERT INTO ebb.reference (resource, holder) SELECT u, $2 FROM unnest(usable) u;
            EXCEPTION WHEN unique_violation THEN
                INSERT INTO ebb.reference (resource, holder) SELECT u, $2 FROM unnest(usable) u ON CONFLICT DO NOTHING;
            END;
        END IF;
        IF NOT alive OR cardinality(usable) IS DISTINCT FROM cardinality($3) THEN
            RETURN QUERY
            SELECT c.name, CASE WHEN r.id IS NULL THEN 'unknown' WHEN r.id = ANY (usable) THEN 'holder' ELSE 'gone' END
            FROM unnest($3) c (name) LEFT JOIN ebb.resource r ON r.policy = $1 AND r.name = c.name AND r.id = ANY (ids)
            WHERE NOT alive OR (r.id = ANY (usable)) IS NOT TRUE;
        END IF;
    END IF;
    IF cardinality($4) > 0 THEN
        DELETE FROM ebb.reference f USING ebb.resource r
        WHERE r.policy = $1 AND r.name = ANY ($4) AND f.resource = r.id AND f.holder = $2;
        IF FOUND THEN
            PERFORM ebb.resource_nudge($1);
        END IF;
    END IF;
END
$$;
