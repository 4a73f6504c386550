-- once: inside a window an event is accepted once. Any language calls these functions inside its own transaction.
-- Purpose: claim a key, with or without a result to come. Index: once_key_pkey arbitrates; once_key_expires_at serves
-- the sweep. Lock: the row that is inserted or taken over, until the caller's transaction ends; a duplicate locks nothing.
--
-- Invariants: of any number of callers one gets 'first' while a claim lives; time is ebb.clock(), asked again at every
-- step; expires_at alone says whether a row lives, so a sweep that deletes rows past it can never change an answer.

CREATE TABLE ebb.once_key (
    namespace       text        COLLATE "C" NOT NULL,
    key             text        COLLATE "C" NOT NULL,
    expires_at      timestamptz NOT NULL,                    -- in flight: the end of the lock term
    token           bigint,                                  -- of the claim that announced a result
    in_flight       interval,                                -- set until completed: the term that completing gives it
    fingerprint     bytea,
    result          jsonb,
    PRIMARY KEY (namespace, key)
);
CREATE INDEX once_key_expires_at ON ebb.once_key (expires_at);

-- A plan made while a table has no pages scans it, and a session keeps that plan until the next ANALYZE, however many
-- keys come in meanwhile. So this one has pages from the start, and VACUUM does not give them back (which would also take
-- an exclusive lock); the sweep's free space is used again by the next claims.
ALTER TABLE ebb.once_key SET (vacuum_truncate = false);
INSERT INTO ebb.once_key (namespace, key, expires_at)
SELECT '-', pg_catalog.repeat('-', 60) || n, '-infinity' FROM pg_catalog.generate_series(1, 2000) n;
DELETE FROM ebb.once_key;

-- Derived from the policies of kind 'once' by ebb apply: a claim reads two intervals instead of parsing a spec.
CREATE TABLE ebb.once_namespace (
    name            text        COLLATE "C" PRIMARY KEY,
    ttl             interval    NOT NULL CHECK (ttl > interval '0'),
    lock            interval    NOT NULL CHECK (lock > interval '0')
);

-- A sequence and not a counter in the row: a token stays unlike every earlier one when the row was swept in between.
CREATE SEQUENCE ebb.once_token;

-- Says what is wrong with the input. The claims ask the same in one expression first, for speed; translate() and not a
-- regular expression there, which costs more than the look at the index.
CREATE FUNCTION ebb.once_check(namespace text, key text, ttl interval) RETURNS void
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF (octet_length(namespace) BETWEEN 1 AND 63 AND
        translate(namespace, 'abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-', '') = '') IS NOT TRUE THEN
        RAISE EXCEPTION 'once: % is not a namespace', coalesce(quote_literal(left(namespace, 80)), 'NULL')
            USING ERRCODE = '22023', HINT = 'A namespace has 1 to 63 letters, digits, - and _.';
    ELSIF (octet_length(key) BETWEEN 1 AND 1024) IS NOT TRUE THEN
        RAISE EXCEPTION 'once: a key of % bytes', coalesce(octet_length(key)::text, 'NULL')
            USING ERRCODE = '22023', HINT = 'A key has 1 to 1024 bytes; hash a longer one, for instance with sha256().';
    ELSIF ttl <= interval '0' THEN
        RAISE EXCEPTION 'once: a term of %', ttl
            USING ERRCODE = '22023', HINT = 'Pass a ttl above zero, or NULL for the term of the namespace.';
    END IF;
END
$$;

-- The one function that has no SET search_path: setting it costs something at every call. Instead every function, operator and
-- type in it is named with its schema, so that nothing of a caller's path is reached with the owner's rights.
CREATE FUNCTION ebb.once(namespace text, key text, ttl interval DEFAULT NULL, fingerprint bytea DEFAULT NULL) RETURNS text
LANGUAGE plpgsql VOLATILE SECURITY DEFINER AS $$
#variable_conflict use_column
DECLARE
    outcome  pg_catalog.text;
    asked_at pg_catalog.timestamptz;
BEGIN
    IF (pg_catalog.octet_length($2) OPERATOR(pg_catalog.>=) 1 AND pg_catalog.octet_length($2) OPERATOR(pg_catalog.<=) 1024
        AND pg_catalog.octet_length($1) OPERATOR(pg_catalog.>=) 1 AND pg_catalog.octet_length($1) OPERATOR(pg_catalog.<=) 63
        AND pg_catalog.translate($1, 'abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-', '') OPERATOR(pg_catalog.=) ''
        AND ($3 IS NULL OR $3 OPERATOR(pg_catalog.>) interval '0')) IS NOT TRUE THEN
        PERFORM ebb.once_check($1, $2, $3);
    END IF;
    -- Each statement has a new snapshot under READ COMMITTED. Under REPEATABLE READ whoever lost to a row that the
    -- snapshot does not show gets a serialization error from the INSERT or the UPDATE, so that this ends there too.
    LOOP
        asked_at := ebb.clock();
        INSERT INTO ebb.once_key (namespace, key, expires_at, fingerprint)
        VALUES ($1, $2, asked_at OPERATOR(pg_catalog.+) coalesce($3, (SELECT n.ttl FROM ebb.once_namespace n WHERE n.name OPERATOR(pg_catalog.=) $1), interval '24 hours'), $4)
        ON CONFLICT DO NOTHING;
        IF NOT FOUND THEN
            SELECT CASE WHEN k.expires_at OPERATOR(pg_catalog.<=) ebb.clock() THEN NULL
                        WHEN k.fingerprint OPERATOR(pg_catalog.<>) $4 THEN 'mismatch'
                        WHEN k.in_flight IS NOT NULL THEN 'in_progress'
                        ELSE 'duplicate' END
            INTO outcome FROM ebb.once_key k
            WHERE k.namespace OPERATOR(pg_catalog.=) $1 AND k.key OPERATOR(pg_catalog.=) $2;
            IF outcome IS NOT NULL THEN
                RETURN outcome;
            END IF;

            asked_at := ebb.clock();
            UPDATE ebb.once_key k
            SET expires_at = asked_at OPERATOR(pg_catalog.+) coalesce($3, (SELECT n.ttl FROM ebb.once_namespace n WHERE n.name OPERATOR(pg_catalog.=) $1), interval '24 hours'),
                token = NULL, in_flight = NULL, fingerprint = $4, result = NULL
            WHERE k.namespace OPERATOR(pg_catalog.=) $1 AND k.key OPERATOR(pg_catalog.=) $2
              AND k.expires_at OPERATOR(pg_catalog.<=) ebb.clock();
        END IF;
        IF FOUND THEN
            -- It waited for a winner that gave up: the term was counted from before the wait, and may be over.
            IF ebb.clock() OPERATOR(pg_catalog.>) (asked_at OPERATOR(pg_catalog.+) interval '10 milliseconds') THEN
                UPDATE ebb.once_key k
                SET expires_at = k.expires_at OPERATOR(pg_catalog.+) (ebb.clock() OPERATOR(pg_catalog.-) asked_at)
                WHERE k.namespace OPERATOR(pg_catalog.=) $1 AND k.key OPERATOR(pg_catalog.=) $2;
            END IF;
            RETURN 'first';
        END IF;
    END LOOP;
END
$$;

-- Set-based, and in one pass over the keys in their order: whatever it locks it locks in that order, so that batches
-- that overlap wait for each other and never in a circle. Living duplicates are left out before anything is locked.
-- A plain INSERT goes first: ON CONFLICT alone costs half as much again. When it meets a row (somebody was quicker, or an
-- expired key was not swept) it is undone, its locks with it, and the pass is made again with ON CONFLICT.
CREATE FUNCTION ebb.once_many(namespace text, keys text[], ttl interval DEFAULT NULL) RETURNS SETOF text
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off AS $$
#variable_conflict use_column
DECLARE
    term     interval;
    asked_at timestamptz;
    firsts   text[];
BEGIN
    IF $2 IS NULL THEN
        RAISE EXCEPTION 'once: the keys are NULL' USING ERRCODE = '22023', HINT = 'Pass an array of keys; an empty one is fine.';
    END IF;
    PERFORM ebb.once_check($1, '-', $3);
    PERFORM ebb.once_check($1, u.key, $3) FROM unnest($2) AS u (key) WHERE (octet_length(u.key) BETWEEN 1 AND 1024) IS NOT TRUE;
    term := coalesce($3, (SELECT n.ttl FROM ebb.once_namespace n WHERE n.name = $1), interval '24 hours');
    asked_at := ebb.clock();

    BEGIN
        WITH first AS (
            INSERT INTO ebb.once_key AS k (namespace, key, expires_at)
            SELECT $1, wanted.key, ebb.clock() + term
            FROM (SELECT DISTINCT u.key COLLATE "C" AS key FROM unnest($2) AS u (key)) wanted
            WHERE NOT EXISTS (SELECT FROM ebb.once_key o
                              WHERE o.namespace = $1 AND o.key = wanted.key AND o.expires_at > asked_at)
            ORDER BY wanted.key
            RETURNING k.key
        )
        SELECT array_agg(first.key) INTO firsts FROM first;
    EXCEPTION WHEN unique_violation THEN
        WITH first AS (
            INSERT INTO ebb.once_key AS k (namespace, key, expires_at)
            SELECT $1, wanted.key, ebb.clock() + term
            FROM (SELECT DISTINCT u.key COLLATE "C" AS key FROM unnest($2) AS u (key)) wanted
            WHERE NOT EXISTS (SELECT FROM ebb.once_key o
                              WHERE o.namespace = $1 AND o.key = wanted.key AND o.expires_at > asked_at)
            ORDER BY wanted.key
            ON CONFLICT (namespace, key) DO UPDATE
                SET expires_at = ebb.clock() + term, token = NULL, in_flight = NULL, fingerprint = NULL, result = NULL
                WHERE k.expires_at <= ebb.clock()
            RETURNING k.key
        )
        SELECT array_agg(first.key) INTO firsts FROM first;
    END;

    -- As in ebb.once; only the rows that waited are behind.
    IF ebb.clock() > asked_at + interval '100 milliseconds' THEN
        UPDATE ebb.once_key k SET expires_at = ebb.clock() + term
        WHERE k.namespace = $1 AND k.key = ANY (firsts) AND k.expires_at < ebb.clock() + term - interval '100 milliseconds';
    END IF;
    RETURN QUERY SELECT unnest(firsts);
END
$$;

-- The claim that announces a result: the same loop, with the lock term as its expiry and a token.
CREATE FUNCTION ebb.once_begin(namespace text, key text, ttl interval DEFAULT NULL, fingerprint bytea DEFAULT NULL,
                               OUT outcome text, OUT token bigint)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off AS $$
#variable_conflict use_column
DECLARE
    lock_term interval;
    term      interval;
    asked_at  timestamptz;
BEGIN
    PERFORM ebb.once_check($1, $2, $3);
    SELECT n.ttl, n.lock INTO term, lock_term FROM ebb.once_namespace n WHERE n.name = $1;
    term := coalesce($3, term, interval '24 hours');
    lock_term := coalesce(lock_term, interval '1 minute');
    LOOP
        asked_at := ebb.clock();
        INSERT INTO ebb.once_key AS k (namespace, key, expires_at, token, in_flight, fingerprint)
        VALUES ($1, $2, asked_at + lock_term, nextval('ebb.once_token'), term, $4)
        ON CONFLICT DO NOTHING
        RETURNING k.token INTO token;
        IF NOT FOUND THEN
            SELECT CASE WHEN k.expires_at <= ebb.clock() THEN NULL
                        WHEN k.fingerprint <> $4 THEN 'mismatch'
                        WHEN k.in_flight IS NOT NULL THEN 'in_progress'
                        ELSE 'duplicate' END
            INTO outcome FROM ebb.once_key k WHERE k.namespace = $1 AND k.key = $2;
            IF outcome IS NOT NULL THEN
                RETURN;
            END IF;

            asked_at := ebb.clock();
            UPDATE ebb.once_key k
            SET expires_at = asked_at + lock_term, token = nextval('ebb.once_token'), in_flight = term, fingerprint = $4, result = NULL
            WHERE k.namespace = $1 AND k.key = $2 AND k.expires_at <= ebb.clock()
            RETURNING k.token INTO token;
        END IF;
        IF FOUND THEN
            IF ebb.clock() > asked_at + interval '10 milliseconds' THEN
                UPDATE ebb.once_key k SET expires_at = k.expires_at + (ebb.clock() - asked_at)
                WHERE k.namespace = $1 AND k.key = $2;
            END IF;
            outcome := 'first';
            RETURN;
        END IF;
    END LOOP;
END
$$;

-- True: the result is stored, and the claim lasts its term from now. A claim whose lock term ended but that nobody took
-- over may still be completed. The same call again (an answer got lost) is true again and changes nothing.
CREATE FUNCTION ebb.once_complete(namespace text, key text, token bigint, result jsonb) RETURNS boolean
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off AS $$
#variable_conflict use_column
BEGIN
    PERFORM ebb.once_check($1, $2, NULL);
    UPDATE ebb.once_key k SET expires_at = ebb.clock() + k.in_flight, in_flight = NULL, result = $4
    WHERE k.namespace = $1 AND k.key = $2 AND k.token = $3 AND k.in_flight IS NOT NULL;
    RETURN FOUND OR EXISTS (
        SELECT FROM ebb.once_key k
        WHERE k.namespace = $1 AND k.key = $2 AND k.token = $3 AND k.in_flight IS NULL
          AND k.result IS NOT DISTINCT FROM $4 AND k.expires_at > ebb.clock());
END
$$;

-- True: the key is free again, as if it had not been claimed.
CREATE FUNCTION ebb.once_release(namespace text, key text, token bigint) RETURNS boolean
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off AS $$
#variable_conflict use_column
BEGIN
    PERFORM ebb.once_check($1, $2, NULL);
    DELETE FROM ebb.once_key k
    WHERE k.namespace = $1 AND k.key = $2 AND k.token = $3 AND k.in_flight IS NOT NULL;
    RETURN FOUND;
END
$$;

-- What the first one stored, while its claim lives; NULL when there is none.
CREATE FUNCTION ebb.once_result(namespace text, key text) RETURNS jsonb
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off AS $$
#variable_conflict use_column
DECLARE
    stored jsonb;
BEGIN
    PERFORM ebb.once_check($1, $2, NULL);
    SELECT k.result INTO stored FROM ebb.once_key k
    WHERE k.namespace = $1 AND k.key = $2 AND k.expires_at > ebb.clock();
    RETURN stored;
END
$$;
