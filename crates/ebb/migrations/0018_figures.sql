-- What the surface reads and writes at scale: claims of many callers in one statement, figures that are kept instead of
-- counted, and every attempt of an event.

-- Claims that came together, in one transaction: [{namespace, key, ttl (microseconds), fingerprint (hex)}, …]; the place of each
-- in the list, its outcome, and for a duplicate what the first one stored. Keys are locked in one order, so that two such calls never
-- wait in a circle. Whoever calls bounds how long it waits for a lock.
CREATE FUNCTION ebb.once_each(claims jsonb, OUT place bigint, OUT outcome text, OUT result jsonb) RETURNS SETOF record
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp SET TimeZone = 'UTC' SET enable_seqscan = off SET jit = off AS $$
#variable_conflict use_variable
DECLARE
    asked record;
BEGIN
    FOR asked IN
        SELECT c.* FROM ROWS FROM (jsonb_to_recordset(claims) AS (namespace text, key text, ttl bigint, fingerprint text))
                        WITH ORDINALITY AS c (namespace, key, ttl, fingerprint, place)
        ORDER BY c.namespace COLLATE "C", c.key COLLATE "C", c.place
    LOOP
        place := asked.place;
        outcome := ebb.once(asked.namespace, asked.key, asked.ttl * interval '1 microsecond', decode(asked.fingerprint, 'hex'));
        result := NULL;
        IF outcome = 'duplicate' THEN
            SELECT k.result INTO result FROM ebb.once_key k
            WHERE k.namespace = asked.namespace AND k.key = asked.key AND k.expires_at > ebb.clock();
        END IF;
        RETURN NEXT;
    END LOOP;
END
$$;

-- A series of samples: one policy's, or, without one, that of all together.
CREATE INDEX sample_series ON ebb.sample (metric, (labels ->> 'policy'), at);

-- The answer to an attempt ($3), with those to the attempts before it: the last one's error ($1) and answer ($2) join the list, which
-- keeps the latest twenty. It lies inside the answer, so that whatever blanks an answer blanks them all.
CREATE FUNCTION ebb.event_answer(error text, before jsonb, answer jsonb) RETURNS jsonb
LANGUAGE sql VOLATILE PARALLEL SAFE AS $$
    SELECT pg_catalog.jsonb_strip_nulls(COALESCE($3, '{}') || pg_catalog.jsonb_build_object(
        'at', (pg_catalog.date_part('epoch', ebb.clock()) * 1000000)::bigint,
        'earlier', CASE WHEN $1 IS NOT NULL OR $2 IS NOT NULL THEN
            CASE WHEN pg_catalog.jsonb_array_length(COALESCE($2 -> 'earlier', '[]')) >= 20 THEN ($2 -> 'earlier') - 0
                 ELSE COALESCE($2 -> 'earlier', '[]') END
            || pg_catalog.jsonb_build_object('at', $2 -> 'at', 'error', $1, 'answer', NULLIF($2 - 'at' - 'earlier', '{}')) END))
$$;

-- Events that failed and wait are few among many that are yet to come. A claim changes none of its columns.
CREATE INDEX event_failed ON ebb.event (sink, ready_at, id) WHERE error IS NOT NULL;

-- Whatever is on record about a deletion, for the timeline of its subject; the one of erasures alone is part of it.
DROP INDEX ebb.audit_erased_deletion;
CREATE INDEX audit_deletion ON ebb.audit ((details ->> 'deletion')) WHERE details ->> 'deletion' IS NOT NULL;
