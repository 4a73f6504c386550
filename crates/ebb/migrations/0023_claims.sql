-- Claims of callers who come together, and of whom each may name the token that it comes with: the token is checked here, so
-- that a request is one round trip. A claim whose token may not do what applications do is not made: its outcome is null.

CREATE OR REPLACE FUNCTION ebb.once_each(claims jsonb, OUT place bigint, OUT outcome text, OUT result jsonb) RETURNS SETOF record
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp SET TimeZone = 'UTC' SET enable_seqscan = off SET jit = off AS $$
#variable_conflict use_variable
DECLARE
    asked   record;
    allowed text[];
BEGIN
    -- A look for each token, however many of the claims come with it.
    allowed := ARRAY(
        SELECT t.token || t.hash
        FROM (SELECT DISTINCT c.token, c.hash FROM jsonb_to_recordset(claims) AS c (token text, hash text) WHERE c.token IS NOT NULL) AS t
        CROSS JOIN LATERAL ebb.token_check(t.token, decode(t.hash, 'hex')) AS k
        WHERE k.role IN ('app', 'operate', 'admin'));
    FOR asked IN
        SELECT c.* FROM ROWS FROM (jsonb_to_recordset(claims)
                                   AS (namespace text, key text, ttl bigint, fingerprint text, token text, hash text))
                        WITH ORDINALITY AS c (namespace, key, ttl, fingerprint, token, hash, place)
        ORDER BY c.namespace COLLATE "C", c.key COLLATE "C", c.place
    LOOP
        place := asked.place;
        outcome := NULL;
        result := NULL;
        IF asked.token IS NULL OR asked.token || asked.hash = ANY (allowed) THEN
            outcome := ebb.once(asked.namespace, asked.key, asked.ttl * interval '1 microsecond', decode(asked.fingerprint, 'hex'));
            IF outcome = 'duplicate' THEN
                SELECT k.result INTO result FROM ebb.once_key k
                WHERE k.namespace = asked.namespace AND k.key = asked.key AND k.expires_at > ebb.clock();
            END IF;
        END IF;
        RETURN NEXT;
    END LOOP;
END
$$;
