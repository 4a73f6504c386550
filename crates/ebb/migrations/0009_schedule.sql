-- schedule: what is due gets delivered. Any language calls ebb.schedule inside its own transaction.
-- Ready and future events share one narrow table; finished ones leave for a history that is dropped by the day. A
-- recurring event is a row that fires: in one statement it puts an ordinary event in its place and moves on.
--
-- Invariants: an event is in ebb.event or, finished, in ebb.event_history, never in both; token only grows, and whatever
-- is written about a claim names it; the id of an occurrence depends on its event and its place in the calendar alone;
-- the body's bytes are made once. Due times go by ebb.now(), leases by clock_timestamp().

CREATE TABLE ebb.event (
    id              uuid        PRIMARY KEY,                 -- of the occurrence: the receiver's idempotency key
    recurring       uuid,                                    -- the recurring event it is an occurrence of
    sink            text        COLLATE "C" NOT NULL,
    due_at          timestamptz NOT NULL,
    ready_at        timestamptz NOT NULL,                    -- due_at, or when the next attempt may start
    lease_until     timestamptz,                             -- while a node holds it
    token           bigint      NOT NULL DEFAULT 0,          -- grows with every claim, and when somebody changes it
    attempts        integer     NOT NULL DEFAULT 0,
    created_at      timestamptz NOT NULL,
    max_late        interval,
    dedupe_key      text        COLLATE "C",
    subject_policy  text,
    subject_id      text,
    node            text,                                    -- who claimed it last
    error           text,                                    -- of the last attempt, and what the receiver answered
    response        jsonb,
    body            text        NOT NULL                     -- what is sent, the same bytes on every attempt
);
-- Claims and sleep go along the first, expired leases along the second.
CREATE INDEX event_ready ON ebb.event (sink, ready_at) WHERE lease_until IS NULL;
CREATE INDEX event_lease ON ebb.event (lease_until) WHERE lease_until IS NOT NULL;
CREATE INDEX event_recurring ON ebb.event (recurring) WHERE recurring IS NOT NULL;
CREATE INDEX event_subject ON ebb.event (subject_policy, subject_id) WHERE subject_id IS NOT NULL;
ALTER TABLE ebb.event SET (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 5000,
                           autovacuum_vacuum_insert_scale_factor = 0.2);

-- What became of events. state: done | dead | cancelled | skipped.
CREATE TABLE ebb.event_history (
    id              uuid        NOT NULL,
    recurring       uuid,
    sink            text        COLLATE "C" NOT NULL,
    state           text        NOT NULL,
    due_at          timestamptz NOT NULL,
    finished_at     timestamptz NOT NULL,
    token           bigint      NOT NULL,
    attempts        integer     NOT NULL,
    created_at      timestamptz NOT NULL,
    max_late        interval,
    dedupe_key      text        COLLATE "C",
    subject_policy  text,
    subject_id      text,
    node            text,
    error           text,
    response        jsonb,
    body            text        NOT NULL
) PARTITION BY RANGE (finished_at);
CREATE INDEX event_history_id ON ebb.event_history (id);
CREATE INDEX event_history_recurring ON ebb.event_history (recurring) WHERE recurring IS NOT NULL;
CREATE INDEX event_history_dead ON ebb.event_history (sink, finished_at) WHERE state = 'dead';
CREATE INDEX event_history_subject ON ebb.event_history (subject_policy, subject_id) WHERE subject_id IS NOT NULL;
CREATE INDEX event_history_finished_at ON ebb.event_history USING brin (finished_at);

-- A dedupe key is unique per sink until the history of its event goes: partitions cannot keep it unique.
CREATE TABLE ebb.event_key (
    sink            text        COLLATE "C" NOT NULL,
    key             text        COLLATE "C" NOT NULL,
    event           uuid        NOT NULL,
    PRIMARY KEY (sink, key)
);

-- Events that come again. next_at is null when it does not: cancelled, or its policy is off.
CREATE TABLE ebb.recurring (
    id              uuid        PRIMARY KEY,
    kind            text        NOT NULL,                    -- yearly | cron
    policy          text,                                    -- the [[schedule]] it comes from
    sink            text        COLLATE "C" NOT NULL,
    next_at         timestamptz,
    year            integer,                                 -- yearly: of next_at
    month           integer,
    day             integer,
    at              time,
    leap_day        text,                                    -- 02-28 | 03-01: where 29 February is in other years
    cron            text,
    zone            text        NOT NULL,
    missed          text        NOT NULL DEFAULT 'all',      -- all | latest | skip
    max_late        interval,
    payload         jsonb       NOT NULL,
    dedupe_key      text        COLLATE "C",
    subject_policy  text,
    subject_id      text,
    version         bigint      NOT NULL DEFAULT 1,
    fired_year      integer,                                 -- yearly: the last one that had its occurrence
    passed_over     bigint      NOT NULL DEFAULT 0,          -- occurrences that were missed and not made up for
    created_at      timestamptz NOT NULL,
    cancelled_at    timestamptz
);
CREATE INDEX recurring_next_at ON ebb.recurring (next_at) WHERE next_at IS NOT NULL;
CREATE INDEX recurring_cancelled_at ON ebb.recurring (cancelled_at) WHERE cancelled_at IS NOT NULL;
CREATE INDEX recurring_subject ON ebb.recurring (subject_policy, subject_id) WHERE subject_id IS NOT NULL;
CREATE UNIQUE INDEX recurring_policy ON ebb.recurring (policy) WHERE policy IS NOT NULL;

-- Nodes that sleep, and until when at most: who writes an event due before that wakes them.
CREATE TABLE ebb.event_sleeper (
    node            uuid        PRIMARY KEY,
    until           timestamptz NOT NULL
);

-- Zone names that were looked up: the server's own list takes a tenth of a second to read.
CREATE TABLE ebb.zone (
    typed           text        PRIMARY KEY,
    name            text        NOT NULL
);

-- A partition of the history for each day from the given one; the number that were missing. Made apart and attached, so
-- that nobody who finishes an event waits.
CREATE FUNCTION ebb.event_history_extend(since timestamptz DEFAULT ebb.now(), days integer DEFAULT 7) RETURNS integer
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET TimeZone = 'UTC' AS $$
DECLARE
    first   timestamptz;
    part    text;
    made    integer := 0;
BEGIN
    -- One at a time: whoever comes second finds them made.
    PERFORM pg_advisory_xact_lock(hashtextextended('ebb.event_history', 0));
    FOR i IN 0 .. days LOOP
        first := date_trunc('day', since) + i * interval '1 day';
        part := 'event_history_' || to_char(first, 'YYYYMMDD');
        IF to_regclass('ebb.' || part) IS NULL THEN
            EXECUTE format('CREATE TABLE ebb.%I (LIKE ebb.event_history INCLUDING DEFAULTS)', part);
            EXECUTE format('ALTER TABLE ebb.event_history ATTACH PARTITION ebb.%I FOR VALUES FROM (%L) TO (%L)',
                           part, first, first + interval '1 day');
            made := made + 1;
        END IF;
    END LOOP;
    RETURN made;
END
$$;
SELECT ebb.event_history_extend(ebb.now() - interval '1 day');

-- Drops the oldest partition of the history that ended before the given time, with the dedupe keys that lived as long as
-- it; null when there is none. Its name and rows are for the audit's record.
CREATE FUNCTION ebb.event_history_drop(before timestamptz, OUT partition text, OUT rows bigint, OUT day date)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET TimeZone = 'UTC' AS $$
#variable_conflict use_variable
BEGIN
    SELECT c.relname, to_date(right(c.relname, 8), 'YYYYMMDD') INTO partition, day
    FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
    WHERE i.inhparent = 'ebb.event_history'::regclass AND c.relname ~ '^event_history_\d{8}$'
      AND to_date(right(c.relname, 8), 'YYYYMMDD') + 1 <= before
    ORDER BY c.relname LIMIT 1;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    EXECUTE format('SELECT count(*) FROM ebb.%I', partition) INTO rows;
    EXECUTE format(
        'DELETE FROM ebb.event_key k USING ebb.%I h
         WHERE h.dedupe_key IS NOT NULL AND k.sink = h.sink AND k.key = h.dedupe_key AND k.event = COALESCE(h.recurring, h.id)
           AND NOT EXISTS (SELECT FROM ebb.event e WHERE e.id = k.event)
           AND NOT EXISTS (SELECT FROM ebb.recurring r WHERE r.id = k.event)', partition);
    EXECUTE format('DROP TABLE ebb.%I', partition);
END
$$;

-- Ids that grow with time, so that their index does: UUID version 7.
CREATE FUNCTION ebb.event_id() RETURNS uuid LANGUAGE sql VOLATILE PARALLEL SAFE AS $$
    SELECT pg_catalog.encode(pg_catalog.set_bit(pg_catalog.set_bit(pg_catalog.overlay(
        pg_catalog.uuid_send(pg_catalog.gen_random_uuid()),
        pg_catalog.substr(pg_catalog.int8send((pg_catalog.date_part('epoch', pg_catalog.clock_timestamp()) * 1000)::bigint), 3), 1, 6),
        52, 1), 53, 1), 'hex')::uuid
$$;

-- The id of one occurrence of a recurring event: always the same for the same place in the calendar. UUID version 8 over
-- SHA-256.
CREATE FUNCTION ebb.occurrence_id(event uuid, place text) RETURNS uuid LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE AS $$
    SELECT (pg_catalog.overlay(pg_catalog.overlay(
        pg_catalog.encode(pg_catalog.substr(pg_catalog.sha256(pg_catalog.uuid_send(event) || pg_catalog.convert_to(place, 'UTF8')), 1, 16), 'hex'),
        '8', 13, 1), '8', 17, 1))::uuid
$$;

-- What is sent. The payload goes through as the server writes it.
CREATE FUNCTION ebb.event_body(id uuid, event uuid, due_at timestamptz, payload jsonb) RETURNS text
LANGUAGE sql STABLE PARALLEL SAFE AS $$
    SELECT '{"id":"' || id || '","type":'
        || CASE WHEN pg_catalog.jsonb_typeof(payload -> 'type') = 'string' AND payload ->> 'type' <> '' THEN (payload -> 'type')::text
                WHEN pg_catalog.jsonb_typeof(payload -> 'event') = 'string' AND payload ->> 'event' <> '' THEN (payload -> 'event')::text
                ELSE 'null' END
        || ',"idempotencyKey":"' || id || '","eventId":"' || event || '","due_at":'
        || pg_catalog.rtrim(pg_catalog.to_json(due_at AT TIME ZONE 'UTC')::text, '"') || 'Z","data":' || payload::text || '}'
$$;

-- Wakes the nodes that would sleep past this due time. The caller has written before it asks: a node that was not seen
-- here sees the caller's lock on ebb.event, and keeps looking until it is gone. An older snapshot knows nothing of who
-- sleeps, so it always calls.
CREATE FUNCTION ebb.event_wake(due_at timestamptz) RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_variable
BEGIN
    IF EXISTS (SELECT FROM ebb.event_sleeper s WHERE s.until > due_at AND s.until > ebb.clock())
       OR current_setting('transaction_isolation') <> 'read committed' THEN
        PERFORM pg_notify('ebb_events', '');
    END IF;
END
$$;

-- Refuses what cannot be an event, saying why. Called when something is wrong.
CREATE FUNCTION ebb.event_refuse(sink text, due_at timestamptz, payload jsonb, dedupe_key text, max_late interval,
                                 subject_policy text, subject_id text) RETURNS boolean
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_variable
DECLARE
    sinks text;
BEGIN
    IF sink IS NULL OR NOT EXISTS (SELECT FROM ebb.policy p WHERE p.kind = 'sink' AND p.name = sink AND p.enabled) THEN
        SELECT string_agg(p.name, ', ' ORDER BY p.name) INTO sinks FROM ebb.policy p WHERE p.kind = 'sink' AND p.enabled;
        RAISE EXCEPTION 'schedule: there is no sink %', coalesce('"' || sink || '"', 'NULL') USING ERRCODE = '22023',
            HINT = coalesce('The sinks are: ' || sinks || '.', 'Write [sinks.NAME] in ebb.toml and run ebb apply.');
    ELSIF due_at IS NULL THEN
        RAISE EXCEPTION 'schedule: the due time is NULL' USING ERRCODE = '22023', HINT = 'Pass now() for at once.';
    ELSIF due_at < '1970-01-01Z' THEN
        RAISE EXCEPTION 'schedule: the due time % lies before 1970', due_at USING ERRCODE = '22023',
            HINT = 'A time that has passed is due at once; one so long ago is most likely a number in another unit.';
    ELSIF due_at >= '9999-01-01Z' THEN
        RAISE EXCEPTION 'schedule: the due time % lies in or after the year 9999', due_at USING ERRCODE = '22023',
            HINT = 'What is never due need not be scheduled.';
    ELSIF payload IS NULL THEN
        RAISE EXCEPTION 'schedule: the payload is NULL' USING ERRCODE = '22023', HINT = 'Pass ''{}'' for an empty one.';
    ELSIF octet_length(payload::text) > 1048576 THEN
        RAISE EXCEPTION 'schedule: the payload has % bytes, more than 1 MB', octet_length(payload::text) USING ERRCODE = '22023',
            HINT = 'Store the data and put where it is into the payload.';
    ELSIF dedupe_key = '' OR octet_length(dedupe_key) > 1024 THEN
        RAISE EXCEPTION 'schedule: a dedupe key has from 1 to 1024 bytes, not %', octet_length(dedupe_key) USING ERRCODE = '22023',
            HINT = 'Hash what is longer.';
    ELSIF max_late <= interval '0' THEN
        RAISE EXCEPTION 'schedule: max_late (%) must be more than nothing', max_late USING ERRCODE = '22023',
            HINT = 'Leave it out to deliver however late it is.';
    ELSIF (subject_policy IS NULL) <> (subject_id IS NULL) THEN
        RAISE EXCEPTION 'schedule: a subject has both a policy and an id' USING ERRCODE = '22023',
            HINT = 'Pass subject_policy and subject_id together, or neither.';
    END IF;
    RETURN true;
END
$$;

-- An event, once. The same dedupe key again returns the event that has it and changes nothing, whatever else differs.
-- Locks nothing that another event needs.
CREATE FUNCTION ebb.schedule(sink text, due_at timestamptz, payload jsonb, dedupe_key text DEFAULT NULL,
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
    PERFORM ebb.event_wake($2);
    RETURN new_id;
END
$$;

-- Many events in one call: [{sink, due_at, payload, dedupe_key, max_late, subject_policy, subject_id}, …]. Their ids in the
-- same order; for a dedupe key that was used before, or twice in the call, the id of the event that has it.
CREATE FUNCTION ebb.schedule_many(events jsonb) RETURNS SETOF uuid
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off AS $$
#variable_conflict use_column
DECLARE
    soonest timestamptz;
    ids     uuid[];
    -- The events of a call have ids in a row: one that is random each costs as much as all the rest of it.
    base    text := ebb.event_id();
    number  bigint := ('x' || right(base, 12))::bit(48)::bigint;
BEGIN
    IF jsonb_typeof($1) IS DISTINCT FROM 'array' THEN
        RAISE EXCEPTION 'schedule_many: the events are no array' USING ERRCODE = '22023',
            HINT = 'Pass [{"sink": "mail", "due_at": "2030-01-01T09:00:00Z", "payload": {}}, …].';
    END IF;
    IF jsonb_path_exists($1, '$[*] ? (exists(@.dedupe_key))') THEN
        ids := ARRAY(SELECT (left(base, 24) || lpad(to_hex((number + n) & 281474976710655), 12, '0'))::uuid FROM generate_series(1, jsonb_array_length($1)) AS n);
        INSERT INTO ebb.event_key (sink, key, event)
        SELECT g.sink, g.dedupe_key, ids[g.n::integer]
        FROM (SELECT DISTINCT ON (r.sink COLLATE "C", r.dedupe_key COLLATE "C") r.sink, r.dedupe_key, r.n
              FROM ROWS FROM (jsonb_to_recordset($1) AS (sink text, dedupe_key text)) WITH ORDINALITY AS r (sink, dedupe_key, n)
              WHERE octet_length(r.dedupe_key) BETWEEN 1 AND 1024 AND r.sink IS NOT NULL
              ORDER BY r.sink COLLATE "C", r.dedupe_key COLLATE "C", r.n) AS g
        ORDER BY g.sink COLLATE "C", g.dedupe_key COLLATE "C"
        ON CONFLICT DO NOTHING;
    END IF;

    -- One that is refused takes all of them back, so it does not matter that others are written before it is looked at.
    WITH given AS MATERIALIZED (
        SELECT COALESCE(ids[r.n::integer], (left(base, 24) || lpad(to_hex((number + r.n) & 281474976710655), 12, '0'))::uuid) AS id, r.*
        FROM ROWS FROM (jsonb_to_recordset($1) AS (sink text, due_at timestamptz, payload jsonb, dedupe_key text, max_late interval,
                                                   subject_policy text, subject_id text))
             WITH ORDINALITY AS r (sink, due_at, payload, dedupe_key, max_late, subject_policy, subject_id, n)
    ), added AS (
        INSERT INTO ebb.event (id, sink, due_at, ready_at, created_at, max_late, dedupe_key, subject_policy, subject_id, body)
        SELECT g.id, g.sink, g.due_at, g.due_at, ebb.now(), g.max_late, g.dedupe_key, g.subject_policy, g.subject_id,
               ebb.event_body(g.id, g.id, g.due_at, g.payload)
        FROM (SELECT g.* FROM given g ORDER BY g.due_at) AS g
        LEFT JOIN ebb.policy p ON p.kind = 'sink' AND p.name = g.sink AND p.enabled
        WHERE CASE WHEN p.name IS NOT NULL AND g.due_at >= '1970-01-01Z' AND g.due_at < '9999-01-01Z'
                        AND octet_length(g.payload::text) <= 1048576
                        AND (g.dedupe_key IS NULL OR octet_length(g.dedupe_key) BETWEEN 1 AND 1024)
                        AND (g.max_late IS NULL OR g.max_late > interval '0')
                        AND (g.subject_policy IS NULL) = (g.subject_id IS NULL) THEN true
                   ELSE ebb.event_refuse(g.sink, g.due_at, g.payload, g.dedupe_key, g.max_late, g.subject_policy, g.subject_id) END
          AND (g.dedupe_key IS NULL
               OR EXISTS (SELECT FROM ebb.event_key k WHERE k.sink = g.sink AND k.key = g.dedupe_key AND k.event = g.id))
    )
    SELECT min(g.due_at),
           array_agg(CASE WHEN g.dedupe_key IS NULL THEN g.id
                          ELSE (SELECT k.event FROM ebb.event_key k WHERE k.sink = g.sink AND k.key = g.dedupe_key) END ORDER BY g.n)
    INTO soonest, ids
    FROM given g;

    IF soonest IS NOT NULL THEN
        PERFORM ebb.event_wake(soonest);
    END IF;
    RETURN QUERY SELECT unnest(ids);
END
$$;

-- The instant at which clocks in the zone first show this time: of a time that comes twice the first, and for one that
-- never comes the first instant after the gap.
CREATE FUNCTION ebb.local_instant(local timestamp, zone text) RETURNS timestamptz
LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_variable
DECLARE
    found   timestamptz := local AT TIME ZONE zone;
    before  timestamptz := found - interval '26 hours';
    after   timestamptz := found + interval '26 hours';
    middle  timestamptz;
BEGIN
    -- No clock change is near.
    IF (before AT TIME ZONE zone) + interval '26 hours' = local AND (after AT TIME ZONE zone) - interval '26 hours' = local THEN
        RETURN found;
    END IF;
    IF (found AT TIME ZONE zone) = local THEN
        -- The server takes the second of two; the first is that by the offset of the day before.
        middle := found + ((before AT TIME ZONE zone) - (found AT TIME ZONE zone) + interval '26 hours') * -1;
        RETURN CASE WHEN middle < found AND (middle AT TIME ZONE zone) = local THEN middle ELSE found END;
    END IF;
    -- A gap: the first whole second at which clocks show something later.
    WHILE after - before > interval '1 second' LOOP
        middle := date_trunc('second', before + (after - before) / 2);
        IF middle <= before THEN
            middle := before + interval '1 second';
        END IF;
        IF (middle AT TIME ZONE zone) >= local THEN
            after := middle;
        ELSE
            before := middle;
        END IF;
    END LOOP;
    RETURN after;
END
$$;

-- When a yearly event is due in a year.
CREATE FUNCTION ebb.yearly_at(year integer, month integer, day integer, at time, zone text, leap_day text) RETURNS timestamptz
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE AS $$
    SELECT ebb.local_instant(
        CASE WHEN month = 2 AND day = 29 AND NOT (year % 4 = 0 AND (year % 100 <> 0 OR year % 400 = 0)) THEN
            pg_catalog.make_date(year, pg_catalog.split_part(leap_day, '-', 1)::integer, pg_catalog.split_part(leap_day, '-', 2)::integer)
        ELSE pg_catalog.make_date(year, month, day) END + at, zone)
$$;

-- The name of a zone of the IANA database as the server writes it; null when there is none.
CREATE FUNCTION ebb.zone_name(zone text) RETURNS text
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_variable
DECLARE
    known text;
BEGIN
    SELECT z.name INTO known FROM ebb.zone z WHERE z.typed = zone;
    IF NOT FOUND THEN
        SELECT n.name INTO known FROM pg_timezone_names n
        WHERE lower(n.name) = lower(zone) AND n.name !~ '^(posix|right)/' AND n.name NOT IN ('localtime', 'posixrules', 'Factory');
        IF FOUND THEN
            INSERT INTO ebb.zone (typed, name) VALUES (zone, known) ON CONFLICT DO NOTHING;
        END IF;
    END IF;
    RETURN known;
END
$$;

-- An event every year: "9:00 on 29 February in Asia/Jakarta". The same dedupe key again moves the occurrence to come and
-- never doubles it: a year that had its occurrence gets no other.
CREATE FUNCTION ebb.schedule_yearly(sink text, month integer, day integer, at time, zone text, payload jsonb, dedupe_key text,
                                    missed text DEFAULT 'all', max_late interval DEFAULT NULL, leap_day text DEFAULT '02-28',
                                    subject_policy text DEFAULT NULL, subject_id text DEFAULT NULL)
RETURNS uuid LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    event   uuid := ebb.event_id();
    named   text := ebb.zone_name($5);
    fired   integer;
    in_year integer;
    due     timestamptz;
BEGIN
    IF $2 IS NULL OR $3 IS NULL OR $2 NOT BETWEEN 1 AND 12
       OR $3 NOT BETWEEN 1 AND extract(day FROM make_date(2000, $2, 1) + interval '1 month -1 day') THEN
        RAISE EXCEPTION 'schedule_yearly: there is no day % of month %', $3, $2 USING ERRCODE = '22023',
            HINT = 'The month is from 1 to 12; 29 February is a day, 30 February is not.';
    ELSIF $4 IS NULL THEN
        RAISE EXCEPTION 'schedule_yearly: the time of day is NULL' USING ERRCODE = '22023', HINT = 'Pass time ''09:00''.';
    ELSIF $4 >= '24:00' THEN
        RAISE EXCEPTION 'schedule_yearly: 24:00 belongs to the next day' USING ERRCODE = '22023', HINT = 'Pass time ''00:00'' and that day.';
    ELSIF named IS NULL THEN
        RAISE EXCEPTION 'schedule_yearly: % is no time zone', coalesce('"' || $5 || '"', 'NULL') USING ERRCODE = '22023',
            HINT = 'Pass a name of the IANA database, such as Asia/Jakarta or UTC.';
    ELSIF $8 IS NULL OR $8 NOT IN ('all', 'latest', 'skip') THEN
        RAISE EXCEPTION 'schedule_yearly: missed cannot be %', coalesce('"' || $8 || '"', 'NULL') USING ERRCODE = '22023',
            HINT = 'It is all, latest or skip.';
    ELSIF $10 IS NULL OR $10 NOT IN ('02-28', '03-01') THEN
        RAISE EXCEPTION 'schedule_yearly: leap_day cannot be %', coalesce('"' || $10 || '"', 'NULL') USING ERRCODE = '22023',
            HINT = 'It is 02-28 or 03-01: when 29 February is in years without one.';
    END IF;
    PERFORM ebb.event_refuse($1, '2000-01-01Z', $6, $7, $9, $11, $12);

    IF $7 IS NOT NULL THEN
        LOOP
            INSERT INTO ebb.event_key (sink, key, event) VALUES ($1, $7, event) ON CONFLICT DO NOTHING;
            EXIT WHEN FOUND;
            SELECT k.event INTO event FROM ebb.event_key k WHERE k.sink = $1 AND k.key = $7;
            EXIT WHEN FOUND;
            event := ebb.event_id();
        END LOOP;
    END IF;
    -- Whoever fires it or moves it too waits here, or is waited for.
    SELECT r.fired_year INTO fired FROM ebb.recurring r WHERE r.id = event FOR UPDATE;
    IF NOT FOUND AND EXISTS (SELECT FROM ebb.event_key k WHERE k.sink = $1 AND k.key = $7 AND k.event = event)
       AND (EXISTS (SELECT FROM ebb.event e WHERE e.id = event) OR EXISTS (SELECT FROM ebb.event_history h WHERE h.id = event)) THEN
        RAISE EXCEPTION 'schedule_yearly: the dedupe key "%" belongs to an event that comes once', $7 USING ERRCODE = '22023',
            HINT = 'Use another key.';
    END IF;

    in_year := extract(year FROM ebb.now() AT TIME ZONE named);
    in_year := greatest(in_year, fired + 1);
    LOOP
        due := ebb.yearly_at(in_year, $2, $3, $4, named, $10);
        EXIT WHEN due > ebb.now();
        in_year := in_year + 1;
    END LOOP;

    INSERT INTO ebb.recurring AS r (id, kind, sink, next_at, year, month, day, at, leap_day, zone, missed, max_late, payload,
                                    dedupe_key, subject_policy, subject_id, created_at)
    VALUES (event, 'yearly', $1, due, in_year, $2, $3, $4, $10, named, $8, $9, $6, $7, $11, $12, ebb.now())
    ON CONFLICT (id) DO UPDATE
        SET next_at = EXCLUDED.next_at, year = EXCLUDED.year, month = EXCLUDED.month, day = EXCLUDED.day, at = EXCLUDED.at,
            leap_day = EXCLUDED.leap_day, zone = EXCLUDED.zone, missed = EXCLUDED.missed, max_late = EXCLUDED.max_late,
            payload = EXCLUDED.payload, subject_policy = EXCLUDED.subject_policy, subject_id = EXCLUDED.subject_id,
            version = r.version + 1, cancelled_at = NULL;
    PERFORM ebb.event_wake(due);
    RETURN event;
END
$$;

-- Takes events out of ebb.event into the history; the number of them. One that a node holds at this moment stays, unless
-- its subject goes.
CREATE FUNCTION ebb.event_end(ids uuid[], held boolean, blank boolean) RETURNS bigint
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
            RETURN ended;
        EXCEPTION WHEN check_violation THEN
            -- No node has made today's partition.
            IF attempt = 2 THEN
                RAISE;
            END IF;
            PERFORM ebb.event_history_extend();
        END;
    END LOOP;
END
$$;

-- True: it will not be delivered (any more). False: it was, it is being delivered at this moment, or nobody knows it.
CREATE FUNCTION ebb.cancel(event uuid) RETURNS boolean
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

-- A subject is being erased: what is still to come for it is cancelled, and what was delivered keeps neither body nor
-- answer nor anything else that leads to it. The number of events that were cancelled.
CREATE FUNCTION ebb.forget_subject_events(policy text, id text) RETURNS bigint
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off AS $$
#variable_conflict use_column
DECLARE
    cancelled bigint;
    recurring bigint;
BEGIN
    DELETE FROM ebb.event_key k USING ebb.event e
    WHERE e.subject_policy = $1 AND e.subject_id = $2 AND k.sink = e.sink AND k.key = e.dedupe_key;
    DELETE FROM ebb.event_key k USING ebb.event_history h
    WHERE h.subject_policy = $1 AND h.subject_id = $2 AND k.sink = h.sink AND k.key = h.dedupe_key;
    DELETE FROM ebb.event_key k USING ebb.recurring r
    WHERE r.subject_policy = $1 AND r.subject_id = $2 AND k.sink = r.sink AND k.key = r.dedupe_key;
    WITH gone AS (DELETE FROM ebb.recurring r WHERE r.subject_policy = $1 AND r.subject_id = $2 RETURNING r.next_at)
    SELECT count(g.next_at) INTO recurring FROM gone g;
    cancelled := ebb.event_end(ARRAY(SELECT e.id FROM ebb.event e WHERE e.subject_policy = $1 AND e.subject_id = $2), true, true);
    UPDATE ebb.event_history h SET body = '', response = NULL, error = NULL, dedupe_key = NULL, subject_id = NULL
    WHERE h.subject_policy = $1 AND h.subject_id = $2;
    RETURN cancelled + recurring;
END
$$;

-- Every event and occurrence that is known, with its state: pending | running | failed (will be tried again) | done | dead |
-- cancelled | skipped.
CREATE VIEW ebb.v_events AS
SELECT COALESCE(e.recurring, e.id) AS event, e.id AS occurrence, e.sink,
       CASE WHEN e.lease_until > clock_timestamp() THEN 'running' WHEN e.attempts > 0 THEN 'failed' ELSE 'pending' END AS state,
       e.due_at, e.ready_at, NULL::timestamptz AS finished_at, e.attempts, e.token AS version, e.max_late, e.dedupe_key,
       e.subject_policy, e.subject_id, e.node, e.error AS last_error, e.response, e.body, e.created_at
FROM ebb.event e
UNION ALL
SELECT COALESCE(h.recurring, h.id), h.id, h.sink, h.state, h.due_at, NULL, h.finished_at, h.attempts, h.token, h.max_late, h.dedupe_key,
       h.subject_policy, h.subject_id, h.node, h.error, h.response, h.body, h.created_at
FROM ebb.event_history h;
COMMENT ON VIEW ebb.v_events IS 'Events and occurrences with their state, finished ones as long as history is kept';

CREATE VIEW ebb.v_events_late AS
SELECT COALESCE(h.recurring, h.id) AS event, h.id AS occurrence, h.sink, h.due_at, h.finished_at AS executed_at,
       h.finished_at - h.due_at AS lateness, (extract(epoch FROM h.finished_at - h.due_at) / 60)::float8 AS lateness_minutes,
       h.attempts, h.node
FROM ebb.event_history h
WHERE h.state = 'done' AND h.finished_at > h.due_at + interval '5 minutes';
COMMENT ON VIEW ebb.v_events_late IS 'Events that were delivered more than five minutes after their due time';

CREATE VIEW ebb.v_events_stuck AS
SELECT COALESCE(e.recurring, e.id) AS event, e.id AS occurrence, e.sink,
       CASE WHEN e.lease_until > clock_timestamp() THEN 'running' WHEN e.attempts > 0 THEN 'failed' ELSE 'pending' END AS state,
       e.due_at, e.ready_at AS next_attempt_at, e.attempts, e.error AS last_error,
       ebb.now() - e.due_at AS age, (extract(epoch FROM ebb.now() - e.due_at) / 60)::float8 AS age_minutes, e.node
FROM ebb.event e
WHERE e.due_at < ebb.now() - interval '1 hour';
COMMENT ON VIEW ebb.v_events_stuck IS 'Events that are still not delivered an hour after their due time';
