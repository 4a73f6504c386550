-- resources: short-lived things outside (tables, objects) live exactly as long as someone refers to them.
-- Any language calls these functions inside its own transaction.
--
-- creating → live → condemned → dropping → dropped. A reference is a row of one resource and one holder, not a number:
-- a holder that dies takes its references with it, and nothing skews. Invariants: incref locks resource and holder FOR
-- KEY SHARE and never writes the resource; whoever condemns, claims or expires locks FOR UPDATE first and looks at
-- references in the next statement. So a reference is seen by the one who would drop, or is refused as gone. A name that
-- was dropped is not given out again while its tombstone stands: a late DROP can hit nobody.

-- Who refers to resources, alive by a term. By clock_timestamp(), like every lease.
CREATE TABLE ebb.holder (
    id              uuid        PRIMARY KEY DEFAULT gen_random_uuid(),
    name            text        NOT NULL,
    term            interval    NOT NULL CHECK (term > interval '0'),
    labels          jsonb       NOT NULL DEFAULT '{}',
    opened_at       timestamptz NOT NULL DEFAULT clock_timestamp(),
    beat_at         timestamptz NOT NULL DEFAULT clock_timestamp(),
    expires_at      timestamptz NOT NULL,                    -- from here on it is dead, whatever it thinks
    collect_at      timestamptz NOT NULL                     -- a third of the term later: now its references go
);
CREATE INDEX holder_collect_at ON ebb.holder (collect_at);

CREATE TABLE ebb.resource (
    id              bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    policy          text        COLLATE "C" NOT NULL,
    name            text        COLLATE "C" NOT NULL,
    state           text        NOT NULL DEFAULT 'creating'
                    CHECK (state IN ('creating', 'live', 'condemned', 'dropping', 'blocked', 'dropped')),
    store_id        text,                                    -- what the store calls it: a UUID, an oid, an ETag
    labels          jsonb       NOT NULL DEFAULT '{}',
    creator         uuid,                                    -- the holder that announced it
    orphan          boolean     NOT NULL DEFAULT false,      -- found by the sweeper: nobody had announced it
    seen_modified   timestamptz,                             -- orphans: the store's own time of the last change, when it was claimed
    problem         text,                                    -- why it is not dropped yet, or was not dropped by us
    intended_at     timestamptz NOT NULL DEFAULT ebb.clock(),
    created_at      timestamptz,
    condemned_at    timestamptz,
    dropping_at     timestamptz,
    retry_at        timestamptz NOT NULL DEFAULT '-infinity', -- a drop that the store refused is tried again then
    dropped_at      timestamptz                              -- a tombstone from here on
);
CREATE UNIQUE INDEX resource_name ON ebb.resource (policy, name);
CREATE INDEX resource_used ON ebb.resource (policy, id) WHERE state IN ('creating', 'live');
CREATE INDEX resource_condemned ON ebb.resource (policy, condemned_at) WHERE state = 'condemned';
CREATE INDEX resource_dropping ON ebb.resource (policy, retry_at, id) WHERE state IN ('dropping', 'blocked');
CREATE INDEX resource_dropped_at ON ebb.resource (dropped_at) WHERE state = 'dropped';

CREATE TABLE ebb.reference (
    resource        bigint      NOT NULL,
    holder          uuid        NOT NULL,
    at              timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (resource, holder)
);
CREATE INDEX reference_holder ON ebb.reference (holder);

-- Which installation this is: the owner marker in a store names it. Another database has another one.
CREATE TABLE ebb.installation (
    one             boolean     PRIMARY KEY DEFAULT true CHECK (one),
    id              uuid        NOT NULL DEFAULT gen_random_uuid(),
    since           timestamptz NOT NULL DEFAULT clock_timestamp()
);
INSERT INTO ebb.installation DEFAULT VALUES;

-- What is known about the store of a policy. Derived by ebb apply; a node only counts sweeps and notes what it saw.
CREATE TABLE ebb.resource_store (
    policy          text        COLLATE "C" PRIMARY KEY,
    location        text        NOT NULL,                    -- driver and place, no secret
    names           text        NOT NULL,                    -- a regular expression: what an announced name must match
    pattern         text        NOT NULL,                    -- the same as people wrote it
    generation      bigint      NOT NULL DEFAULT 0,          -- sweeps; the marker in the store never has a higher one
    confirmed_at    timestamptz,                             -- somebody looked at the first report and let it sweep
    confirmed_by    text,
    confirmed_for   text,                                    -- the place and the server it was said for
    report          jsonb                                    -- what the last sweep found
);

-- What the sweeper saw and nobody knows, since when it has been seen unchanged.
CREATE TABLE ebb.sighting (
    policy          text        COLLATE "C" NOT NULL,
    name            text        COLLATE "C" NOT NULL,
    store_id        text,
    modified_at     timestamptz,
    first_seen      timestamptz NOT NULL,
    last_seen       timestamptz NOT NULL,
    size            bigint,
    PRIMARY KEY (policy, name)
);

-- Asks for a unit to be run soon without touching its row: writers never wait for each other, nor a node for them.
CREATE TABLE ebb.nudge (
    unit            text        NOT NULL,
    at              timestamptz NOT NULL DEFAULT clock_timestamp()
);
CREATE INDEX nudge_unit ON ebb.nudge (unit);

-- Wakes the dropper of a policy, once until it has heard: every further NOTIFY would slow commits down.
CREATE FUNCTION ebb.resource_nudge(resources text) RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    INSERT INTO ebb.nudge (unit)
    SELECT u.unit FROM ebb.unit u
    WHERE u.chore = 'drop' AND u.policy = $1 AND NOT EXISTS (SELECT FROM ebb.nudge n WHERE n.unit = u.unit);
    IF FOUND THEN
        PERFORM pg_notify('ebb', '');
    END IF;
END
$$;

-- The policy is there and takes new resources, or an error says what is wrong. Returns its name pattern.
CREATE FUNCTION ebb.resource_policy(resources text) RETURNS ebb.resource_store
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    store ebb.resource_store;
BEGIN
    SELECT * INTO store FROM ebb.resource_store s WHERE s.policy = $1;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'resources: there is no policy %', coalesce(quote_literal(left($1, 80)), 'NULL')
            USING ERRCODE = '22023', HINT = 'Write it into ebb.toml as [[resources]] and run `ebb apply`.';
    END IF;
    RETURN store;
END
$$;

CREATE FUNCTION ebb.holder_open(name text, term interval, labels jsonb DEFAULT '{}') RETURNS uuid
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    opened uuid;
BEGIN
    IF (octet_length($1) BETWEEN 1 AND 200) IS NOT TRUE THEN
        RAISE EXCEPTION 'resources: a holder needs a name of 1 to 200 bytes' USING ERRCODE = '22023',
            HINT = 'Any name will do: the host and process, the job.';
    ELSIF ($2 BETWEEN interval '1 second' AND interval '7 days') IS NOT TRUE THEN
        RAISE EXCEPTION 'resources: a holder with a term of %', coalesce($2::text, 'NULL') USING ERRCODE = '22023',
            HINT = 'A term lies between 1 second and 7 days; beat at a third of it, for instance every 20 s for 1 minute.';
    ELSIF (jsonb_typeof($3) = 'object') IS NOT TRUE THEN
        RAISE EXCEPTION 'resources: labels are a JSON object' USING ERRCODE = '22023', HINT = 'For instance {"job": "42"}.';
    END IF;
    INSERT INTO ebb.holder (name, term, labels, expires_at, collect_at)
    VALUES ($1, $2, $3, clock_timestamp() + $2, clock_timestamp() + $2 * 4 / 3)
    RETURNING id INTO opened;
    RETURN opened;
END
$$;

-- Prolongs a living holder. False: it is dead, by its own lateness; its resources may go at any moment, it must stop
-- using them. A dead holder stays dead, also while its references still stand. Lock: the row, of a non-key UPDATE,
-- which an incref does not block.
CREATE FUNCTION ebb.holder_beat(holder uuid) RETURNS boolean
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    UPDATE ebb.holder h
    SET beat_at = clock_timestamp(), expires_at = clock_timestamp() + h.term, collect_at = clock_timestamp() + h.term * 4 / 3
    WHERE h.id = $1 AND h.expires_at > clock_timestamp();
    RETURN FOUND;
END
$$;

-- Ends holders and all they refer to. Lock first ($1, FOR UPDATE: waits for increfs under way), look in the next statement.
CREATE FUNCTION ebb.holder_end(holders uuid[]) RETURNS bigint
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    released bigint;
    policy   text;
BEGIN
    PERFORM FROM ebb.holder h WHERE h.id = ANY ($1) ORDER BY h.id FOR UPDATE;
    FOR policy IN
        WITH gone AS (DELETE FROM ebb.reference r WHERE r.holder = ANY ($1) RETURNING r.resource)
        SELECT DISTINCT s.policy FROM gone JOIN ebb.resource s ON s.id = gone.resource
    LOOP
        PERFORM ebb.resource_nudge(policy);
    END LOOP;
    DELETE FROM ebb.holder h WHERE h.id = ANY ($1);
    GET DIAGNOSTICS released = ROW_COUNT;
    RETURN released;
END
$$;

CREATE FUNCTION ebb.holder_close(holder uuid) RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM ebb.holder_end(ARRAY[$1]);
END
$$;

-- Locks the holder FOR KEY SHARE until the caller's transaction ends; an error when it is not alive.
CREATE FUNCTION ebb.holder_hold(holder uuid) RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    alive boolean;
BEGIN
    SELECT h.expires_at > clock_timestamp() INTO alive FROM ebb.holder h WHERE h.id = $1 FOR KEY SHARE;
    IF alive IS NOT TRUE THEN
        RAISE EXCEPTION 'resources: holder % is not alive', coalesce($1::text, 'NULL') USING ERRCODE = '55000',
            HINT = 'Its term ran out or it was closed. Stop using what it referred to, and open a new holder.';
    END IF;
END
$$;

-- Announces a resource before it is made, with the creator's reference: whatever happens afterwards, it is known.
-- Saying it again changes nothing. Lock: the new row; the holder FOR KEY SHARE.
CREATE FUNCTION ebb.create_intent(resources text, name text, holder uuid, labels jsonb DEFAULT '{}') RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    store  ebb.resource_store := ebb.resource_policy($1);
    have   ebb.resource;
BEGIN
    IF ($2 ~ store.names) IS NOT TRUE THEN
        RAISE EXCEPTION 'resources: % is not a name of %', coalesce(quote_literal(left($2, 80)), 'NULL'), $1
            USING ERRCODE = '22023', HINT = format('Its names look like %s; a name that does not match is never touched.', store.pattern);
    ELSIF (jsonb_typeof($4) = 'object') IS NOT TRUE THEN
        RAISE EXCEPTION 'resources: labels are a JSON object' USING ERRCODE = '22023', HINT = 'For instance {"job": "42"}.';
    END IF;
    PERFORM ebb.holder_hold($3);
    INSERT INTO ebb.resource (policy, name, labels, creator) VALUES ($1, $2, $4, $3)
    ON CONFLICT (policy, name) DO NOTHING RETURNING * INTO have;
    IF have.id IS NULL THEN
        SELECT * INTO have FROM ebb.resource r WHERE r.policy = $1 AND r.name = $2 FOR KEY SHARE;
        IF have.creator IS DISTINCT FROM $3 OR have.state NOT IN ('creating', 'live') THEN
            RAISE EXCEPTION 'resources: % of % is % already', $2, $1, have.state
                USING ERRCODE = '23505', HINT = 'Ids are used once: take a new one. To refer to what exists, incref it.';
        END IF;
    END IF;
    INSERT INTO ebb.reference (resource, holder) VALUES (have.id, $3) ON CONFLICT DO NOTHING;
END
$$;

-- The resource exists now. False: it was given up meanwhile (its creator was late) and the caller must drop it itself,
-- or leave it to the sweeper. Lock: the row, of a non-key UPDATE.
CREATE FUNCTION ebb.created(resources text, name text, store_id text DEFAULT NULL) RETURNS boolean
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    now_is text;
BEGIN
    PERFORM ebb.resource_policy($1);
    UPDATE ebb.resource r
    SET state = CASE r.state WHEN 'creating' THEN 'live' ELSE r.state END,
        store_id = coalesce($3, r.store_id),
        created_at = coalesce(r.created_at, ebb.clock())
    WHERE r.policy = $1 AND r.name = $2 AND r.state IN ('creating', 'live', 'condemned')
    RETURNING r.state INTO now_is;
    RETURN coalesce(now_is = 'live', false);
END
$$;

-- True: the holder refers to it, from the commit of this transaction on; also when it did before. False: it is gone.
-- Lock: resource, then holder, both FOR KEY SHARE; never writes the resource (two rescuers would deadlock).
CREATE FUNCTION ebb.incref(resources text, name text, holder uuid) RETURNS boolean
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    found_id    bigint;
    found_state text;
BEGIN
    SELECT r.id, r.state INTO found_id, found_state
    FROM ebb.resource r WHERE r.policy = $1 AND r.name = $2 FOR KEY SHARE;
    IF found_id IS NULL THEN
        PERFORM ebb.resource_policy($1);
        RETURN false;
    ELSIF found_state NOT IN ('creating', 'live', 'condemned') THEN
        RETURN false;
    END IF;
    PERFORM ebb.holder_hold($3);
    INSERT INTO ebb.reference (resource, holder) VALUES (found_id, $3) ON CONFLICT DO NOTHING;
    RETURN true;
END
$$;

-- The holder no longer refers to it. Without a reference, twice, or of another holder's: nothing happens.
CREATE FUNCTION ebb.decref(resources text, name text, holder uuid) RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    found_id bigint;
BEGIN
    SELECT r.id INTO found_id FROM ebb.resource r WHERE r.policy = $1 AND r.name = $2;
    IF found_id IS NULL THEN
        PERFORM ebb.resource_policy($1);
        RETURN;
    END IF;
    DELETE FROM ebb.reference f WHERE f.resource = found_id AND f.holder = $3;
    IF FOUND AND NOT EXISTS (SELECT FROM ebb.reference f WHERE f.resource = found_id) THEN
        PERFORM ebb.resource_nudge($1);
    END IF;
END
$$;

-- Many changes at once, [{op, resources, name, holder}], as if one after the other: of several of one pair the last one
-- counts. Returns the increfs that came too late, each with its reason: gone, unknown, or "holder" (dead).
-- Lock: resources, then holders, in one order (unsorted batches deadlock), FOR KEY SHARE.
CREATE FUNCTION ebb.apply_refs(changes jsonb) RETURNS jsonb
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off AS $$
DECLARE
    resources   text[];
    names       text[];
    holders     uuid[];
    ups         boolean[];
    ids         bigint[];
    usable      boolean[];
    living      uuid[];
    idle        text;
    late        jsonb;
BEGIN
    IF (jsonb_typeof(changes) = 'array') IS NOT TRUE THEN
        RAISE EXCEPTION 'resources: changes are a JSON array' USING ERRCODE = '22023',
            HINT = 'For instance [{"op": "incref", "resources": "scratch", "name": "t1", "holder": "…"}].';
    END IF;
    IF EXISTS (SELECT FROM jsonb_array_elements(changes) c WHERE jsonb_typeof(c) <> 'object'
               OR (c ->> 'op' IN ('incref', 'decref')) IS NOT TRUE
               OR c ->> 'resources' IS NULL OR c ->> 'name' IS NULL OR c ->> 'holder' IS NULL) THEN
        RAISE EXCEPTION 'resources: a change has op (incref or decref), resources, name and holder' USING ERRCODE = '22023',
            HINT = 'For instance {"op": "incref", "resources": "scratch", "name": "t1", "holder": "…"}.';
    END IF;
    SELECT array_agg(c.resources ORDER BY c.resources, c.name, c.holder), array_agg(c.name ORDER BY c.resources, c.name, c.holder),
           array_agg(c.holder ORDER BY c.resources, c.name, c.holder), array_agg(c.up ORDER BY c.resources, c.name, c.holder)
    INTO resources, names, holders, ups
    FROM (
        SELECT DISTINCT ON (e ->> 'resources' COLLATE "C", e ->> 'name' COLLATE "C", (e ->> 'holder')::uuid)
               e ->> 'resources' COLLATE "C" AS resources, e ->> 'name' COLLATE "C" AS name, (e ->> 'holder')::uuid AS holder,
               e ->> 'op' = 'incref' AS up
        FROM jsonb_array_elements(changes) WITH ORDINALITY AS t (e, n)
        ORDER BY 1, 2, 3, n DESC
    ) c;
    IF resources IS NULL THEN
        RETURN '[]';
    END IF;
    PERFORM ebb.resource_policy(p) FROM (SELECT DISTINCT unnest(resources)) AS d (p);

    -- Which resources, in the order of the arrays; those that are increfed are locked in that order.
    SELECT array_agg(r.id ORDER BY c.n) INTO ids
    FROM unnest(resources, names) WITH ORDINALITY AS c (policy, name, n)
    LEFT JOIN ebb.resource r ON r.policy = c.policy AND r.name = c.name;
    PERFORM FROM ebb.resource r
    WHERE r.id = ANY (ARRAY(SELECT t.id FROM unnest(ids, ups) AS t (id, up) WHERE t.up))
    ORDER BY r.policy, r.name FOR KEY SHARE;
    SELECT array_agg(h.id) INTO living FROM (
        SELECT h.id FROM ebb.holder h
        WHERE h.id = ANY (ARRAY(SELECT t.holder FROM unnest(holders, ups) AS t (holder, up) WHERE t.up))
          AND h.expires_at > clock_timestamp()
        ORDER BY h.id FOR KEY SHARE) h;

    -- Only now, in a new statement: what is their state under the lock?
    SELECT array_agg(coalesce(r.state IN ('creating', 'live', 'condemned'), false) ORDER BY c.n) INTO usable
    FROM unnest(ids) WITH ORDINALITY AS c (id, n) LEFT JOIN ebb.resource r ON r.id = c.id;

    INSERT INTO ebb.reference (resource, holder)
    SELECT t.id, t.holder FROM unnest(ids, holders, ups, usable) AS t (id, holder, up, usable)
    WHERE t.up AND t.usable AND t.holder = ANY (living)
    ORDER BY t.id, t.holder
    ON CONFLICT DO NOTHING;
    FOR idle IN
        WITH gone AS (
            DELETE FROM ebb.reference f
            USING unnest(ids, holders, ups) AS t (id, holder, up)
            WHERE NOT t.up AND f.resource = t.id AND f.holder = t.holder
            RETURNING f.resource
        )
        SELECT DISTINCT r.policy FROM gone JOIN ebb.resource r ON r.id = gone.resource
    LOOP
        PERFORM ebb.resource_nudge(idle);
    END LOOP;

    SELECT coalesce(jsonb_agg(jsonb_build_object('op', 'incref', 'resources', t.policy, 'name', t.name, 'holder', t.holder,
               'reason', CASE WHEN t.id IS NULL THEN 'unknown' WHEN NOT t.usable THEN 'gone' ELSE 'holder' END)), '[]')
    INTO late
    FROM unnest(resources, names, holders, ups, ids, usable) AS t (policy, name, holder, up, id, usable)
    WHERE t.up AND NOT (t.usable AND t.holder = ANY (coalesce(living, '{}')));
    RETURN late;
END
$$;

-- Resources as people and dashboards read them; dropped ones are tombstones.
CREATE VIEW ebb.v_resources AS
SELECT r.policy, r.name, r.state,
       (SELECT count(*) FROM ebb.reference f WHERE f.resource = r.id) AS refs,
       ARRAY(SELECT h.name FROM ebb.reference f JOIN ebb.holder h ON h.id = f.holder WHERE f.resource = r.id ORDER BY h.name) AS holders,
       r.orphan, r.store_id, r.labels, r.problem,
       r.intended_at, r.created_at, r.condemned_at, r.dropping_at, r.dropped_at
FROM ebb.resource r;
COMMENT ON VIEW ebb.v_resources IS 'Resources with their state, who refers to them, and the tombstones of what was dropped';
