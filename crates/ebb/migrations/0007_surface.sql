-- The surface: who may ask over HTTP, and the OpenLineage events that were accepted.
-- Invariants: only a hash of a token is here, and no role but the owner reads even that; a token or session counts until
-- it expires or is revoked, by clock_timestamp(), and from that moment on no more.

CREATE TABLE ebb.token (
    id              text        PRIMARY KEY,                 -- the public part of the token: names it in lists and audit
    name            text        NOT NULL,
    role            text        NOT NULL CHECK (role IN ('read', 'app', 'operate', 'admin')),
    hash            bytea       NOT NULL,                    -- SHA-256 of the secret part, which has 256 random bits
    created_at      timestamptz NOT NULL DEFAULT clock_timestamp(),
    created_by      text        NOT NULL,
    expires_at      timestamptz,
    last_used_at    timestamptz,                             -- to the minute
    revoked_at      timestamptz,
    revoked_by      text
);

-- What a browser holds instead of the token. It ends with its token.
CREATE TABLE ebb.session (
    hash            bytea       PRIMARY KEY,                 -- SHA-256 of what the cookie says
    token           text        NOT NULL REFERENCES ebb.token ON DELETE CASCADE,
    opened_at       timestamptz NOT NULL DEFAULT clock_timestamp(),
    expires_at      timestamptz NOT NULL
);
CREATE INDEX session_expires_at ON ebb.session (expires_at);

-- The role of a token, or nothing. Equality is asked of hashes of both sides with a fresh nonce, so that how long it
-- takes says nothing about the stored hash; an unknown id takes as long as a wrong secret.
CREATE FUNCTION ebb.token_check(id text, hash bytea, OUT name text, OUT role text)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    known  ebb.token;
    nonce  bytea := uuid_send(gen_random_uuid());
    fits   boolean;
BEGIN
    SELECT t.* INTO known FROM ebb.token t WHERE t.id = $1;
    fits := sha256(coalesce(known.hash, '\x00'::bytea) || nonce) = sha256($2 || nonce);
    IF fits IS NOT TRUE OR known.revoked_at IS NOT NULL OR known.expires_at <= clock_timestamp() THEN
        RETURN;
    END IF;
    IF known.last_used_at IS NULL OR known.last_used_at < clock_timestamp() - interval '1 minute' THEN
        UPDATE ebb.token t SET last_used_at = clock_timestamp()
        WHERE t.id = (SELECT o.id FROM ebb.token o WHERE o.id = $1 FOR NO KEY UPDATE SKIP LOCKED);
    END IF;
    name := known.name;
    role := known.role;
END
$$;

-- Whether anybody could be let in at all: without a token nothing but loopback is listened on.
CREATE FUNCTION ebb.token_exists() RETURNS boolean
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    SELECT EXISTS (SELECT FROM ebb.token t
                   WHERE t.revoked_at IS NULL AND (t.expires_at IS NULL OR t.expires_at > clock_timestamp()))
$$;

-- Opens a session for whoever has a token: $3 is the hash of what the cookie will say. The role, or NULL.
CREATE FUNCTION ebb.session_open(id text, hash bytea, session_hash bytea, term interval) RETURNS text
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    granted text;
BEGIN
    SELECT c.role INTO granted FROM ebb.token_check($1, $2) c;
    IF granted IS NULL THEN
        RETURN NULL;
    END IF;
    -- Few, and never missed: nobody else sweeps them.
    DELETE FROM ebb.session s WHERE s.expires_at <= clock_timestamp();
    INSERT INTO ebb.session (hash, token, expires_at) VALUES ($3, $1, clock_timestamp() + $4);
    RETURN granted;
END
$$;

CREATE FUNCTION ebb.session_check(session_hash bytea, OUT id text, OUT name text, OUT role text)
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    SELECT t.id, t.name, t.role FROM ebb.session s JOIN ebb.token t ON t.id = s.token
    WHERE s.hash = $1 AND s.expires_at > clock_timestamp()
      AND t.revoked_at IS NULL AND (t.expires_at IS NULL OR t.expires_at > clock_timestamp())
$$;

CREATE FUNCTION ebb.session_close(session_hash bytea) RETURNS void
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    DELETE FROM ebb.session s WHERE s.hash = $1
$$;

-- Accepted OpenLineage events, each once within the window of the namespace openlineage. event is json and not jsonb:
-- the bytes that were sent, with facets that nobody here knows, and characters that jsonb has no room for.
CREATE TABLE ebb.lineage_event (
    id              bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    received_at     timestamptz NOT NULL DEFAULT ebb.clock(),
    event_time      timestamptz NOT NULL,
    event_type      text,                                    -- absent in job and dataset events
    producer        text        NOT NULL,
    job_namespace   text,
    job_name        text,
    run_id          text,
    event           json        NOT NULL
);
CREATE INDEX lineage_event_received_at ON ebb.lineage_event (received_at);
