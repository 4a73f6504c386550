-- Upkeep comes first where rows would be refused before long: every gap of a period gets its partition, locks are waited for
-- longer the nearer the end is, and a bound beyond the calendar is no error.

-- As before; a number that no calendar has is as far away as one.
CREATE OR REPLACE FUNCTION ebb.partition_moment(kind text, bound text) RETURNS timestamp
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp SET TimeZone = 'UTC' AS $$
    SELECT CASE WHEN bound = 'MINVALUE' THEN timestamp '-infinity' WHEN bound = 'MAXVALUE' THEN timestamp 'infinity'
        ELSE CASE kind
            WHEN 'timestamptz' THEN btrim(bound, '''')::timestamptz AT TIME ZONE 'UTC'
            WHEN 'timestamp' THEN btrim(bound, '''')::timestamp
            WHEN 'date' THEN btrim(bound, '''')::date::timestamp
            WHEN 's' THEN to_timestamp(greatest(-2e11, least(9e12, btrim(bound, '''')::float8))) AT TIME ZONE 'UTC'
            WHEN 'ms' THEN to_timestamp(greatest(-2e11, least(9e12, btrim(bound, '''')::float8 / 1000))) AT TIME ZONE 'UTC'
            WHEN 'uuid' THEN to_timestamp(('x' || left(replace(btrim(bound, ''''), '-', ''), 12))::bit(48)::int8 / 1000.0) AT TIME ZONE 'UTC'
        END
    END
$$;

CREATE OR REPLACE FUNCTION ebb.partition_bounds(relation oid, kind text)
RETURNS TABLE (oid oid, schema_name text, table_name text, relkind text, lower_bound timestamp, upper_bound timestamp, pending boolean)
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp SET TimeZone = 'UTC' AS $$
    WITH bound AS MATERIALIZED (
        SELECT c.oid, n.nspname, c.relname, c.relkind, i.inhdetachpending,
               -- FOR VALUES FROM ('a') TO ('b'), or DEFAULT; by hand, which costs a tenth of a regular expression.
               NULLIF(translate(pg_get_expr(c.relpartbound, c.oid), '''()', ''), 'DEFAULT') AS range
        FROM pg_inherits i
        JOIN pg_class c ON c.oid = i.inhrelid
        JOIN pg_namespace n ON n.oid = c.relnamespace
        WHERE i.inhparent = relation
    ), split AS MATERIALIZED (
        SELECT bound.*, ARRAY[substr(split_part(range, ' TO ', 1), 17), split_part(range, ' TO ', 2)] AS ends FROM bound
    )
    SELECT b.oid, b.nspname::text, b.relname::text, b.relkind::text,
           CASE WHEN b.range IS NULL THEN NULL WHEN b.ends[1] = 'MINVALUE' THEN timestamp '-infinity' WHEN b.ends[1] = 'MAXVALUE' THEN timestamp 'infinity'
                WHEN kind = 'timestamptz' THEN b.ends[1]::timestamptz AT TIME ZONE 'UTC'
                WHEN kind IN ('timestamp', 'date') THEN b.ends[1]::timestamp
                WHEN kind = 's' THEN to_timestamp(greatest(-2e11, least(9e12, b.ends[1]::float8))) AT TIME ZONE 'UTC'
                WHEN kind = 'ms' THEN to_timestamp(greatest(-2e11, least(9e12, b.ends[1]::float8 / 1000))) AT TIME ZONE 'UTC'
                WHEN kind = 'uuid' THEN ebb.partition_moment(kind, b.ends[1]) END,
           CASE WHEN b.range IS NULL THEN NULL WHEN b.ends[2] = 'MINVALUE' THEN timestamp '-infinity' WHEN b.ends[2] = 'MAXVALUE' THEN timestamp 'infinity'
                WHEN kind = 'timestamptz' THEN b.ends[2]::timestamptz AT TIME ZONE 'UTC'
                WHEN kind IN ('timestamp', 'date') THEN b.ends[2]::timestamp
                WHEN kind = 's' THEN to_timestamp(greatest(-2e11, least(9e12, b.ends[2]::float8))) AT TIME ZONE 'UTC'
                WHEN kind = 'ms' THEN to_timestamp(greatest(-2e11, least(9e12, b.ends[2]::float8 / 1000))) AT TIME ZONE 'UTC'
                WHEN kind = 'uuid' THEN ebb.partition_moment(kind, b.ends[2]) END,
           b.inhdetachpending
    FROM split b
$$;

-- As before, and every piece of a period that no partition covers, also before one that somebody made for a later part of it.
CREATE OR REPLACE FUNCTION ebb.missing_partitions(parent oid, kind text, by_period text, ahead int, zone text)
RETURNS TABLE (start timestamp, lower_bound timestamp, upper_bound timestamp)
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp SET TimeZone = 'UTC' AS $$
    WITH here AS MATERIALIZED (
        SELECT date_trunc(by_period, ebb.now() AT TIME ZONE ebb.partition_zone(kind, zone)) AS this, ('1 ' || by_period)::interval AS step,
               COALESCE((SELECT ebb.partition_limit(parent, a.attname) FROM pg_partitioned_table p
                         JOIN pg_attribute a ON a.attrelid = p.partrelid AND a.attnum = p.partattrs[0] WHERE p.partrelid = parent), 'infinity') AS ends
    ), covered AS MATERIALIZED (
        SELECT COALESCE(range_agg(tsrange(b.lower_bound, b.upper_bound)), '{}') AS all_of_it
        FROM ebb.partition_bounds(parent, kind) b WHERE b.lower_bound IS NOT NULL
    ), periods AS MATERIALIZED (
        SELECT here.this + n * here.step AS start, least(here.this + (n + 1) * here.step, here.ends) AS upper_bound
        FROM here, generate_series(0, ahead) n
        WHERE here.this + n * here.step < here.ends
    )
    SELECT p.start, lower(f.piece), upper(f.piece)
    FROM periods p, covered, unnest(tsmultirange(tsrange(p.start, p.upper_bound)) - covered.all_of_it) f (piece)
    ORDER BY 2
$$;

-- As before, but whoever asks says how long a lock may be waited for; and where the table refers to others, whose writers wait from
-- the first partition on until the transaction ends, no more are made than fit into a moment: the next call goes on.
CREATE OR REPLACE FUNCTION ebb.add_partitions(parent oid, column_name text, by_period text, ahead int, unit text, zone text, at_most int)
RETURNS int LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET TimeZone = 'UTC' AS $$
DECLARE
    kind text := ebb.partition_kind(parent, column_name, unit);
    made int := 0;
    one record;
    refers boolean := EXISTS (SELECT FROM pg_constraint k WHERE k.conrelid = parent AND k.contype = 'f');
    began timestamptz;
BEGIN
    IF kind IS NULL THEN
        RAISE EXCEPTION 'column % of % cannot tell the time', quote_ident(column_name), parent::regclass
            USING HINT = 'it must be timestamptz, timestamp, date, uuid (version 7), or an integer with unit = "s" or "ms"';
    END IF;
    IF NOT EXISTS (SELECT FROM ebb.missing_partitions(parent, kind, by_period, ahead, zone)) THEN
        RETURN 0;
    END IF;
    EXECUTE format('LOCK TABLE ONLY %s IN SHARE UPDATE EXCLUSIVE MODE', parent::regclass);
    IF EXISTS (SELECT FROM ebb.partition_bounds(parent, kind) b WHERE b.lower_bound IS NULL) THEN
        RAISE EXCEPTION 'table % has a DEFAULT partition, which would be read under a lock whenever one is added', parent::regclass
            USING HINT = 'empty and detach it; `ebb partition list` prints the statements';
    END IF;
    FOR one IN SELECT * FROM ebb.missing_partitions(parent, kind, by_period, ahead, zone) LIMIT at_most LOOP
        EXIT WHEN refers AND clock_timestamp() > began + interval '150 ms';
        PERFORM ebb.add_derived_checks(
            ebb.create_partition(parent, ebb.free_partition_name(parent, ebb.partition_suffix(by_period, one.start)),
                                 ebb.partition_literal(kind, one.lower_bound), ebb.partition_literal(kind, one.upper_bound)),
            column_name, kind, one.lower_bound, one.upper_bound);
        began := COALESCE(began, clock_timestamp());
        made := made + 1;
    END LOOP;
    RETURN made;
END
$$;

-- As before. Where the next period is a week away or less, or a day of days, and has no partition, the last tries wait for two
-- seconds: others would rather wait than be refused.
CREATE OR REPLACE FUNCTION ebb.ensure_partitions(policy text) RETURNS int
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET lock_timeout = '60ms' AS $$
DECLARE
    found record;
    parent oid;
    who text;
    is_urgent boolean;
BEGIN
    SELECT p.spec, p.enabled, p.stopped INTO found FROM ebb.policy p WHERE p.kind = 'partition' AND p.name = policy;
    IF found IS NULL THEN
        RAISE EXCEPTION 'there is no partition policy %', quote_literal(policy) USING HINT = 'ebb policy list shows them';
    END IF;
    IF NOT found.enabled OR found.stopped IS NOT NULL THEN
        RAISE EXCEPTION 'partition policy % does not run: %', quote_literal(policy), COALESCE(found.stopped, 'it is disabled');
    END IF;
    parent := ebb.policy_table(found.spec ->> 'table');
    IF parent IS NULL THEN
        RAISE EXCEPTION 'there is no table %', found.spec ->> 'table';
    END IF;
    FOR attempt IN 1 .. 10 LOOP
        BEGIN
            RETURN ebb.add_partitions(parent, found.spec ->> 'column', found.spec ->> 'by', COALESCE((found.spec ->> 'ahead')::int, 12),
                found.spec ->> 'unit', found.spec ->> 'zone', 2147483647);
        EXCEPTION WHEN lock_not_available THEN
            who := COALESCE(ebb.in_the_way(parent), who);
        END;
        IF attempt = 7 THEN
            SELECT min(m.lower_bound) < ebb.now() AT TIME ZONE ebb.partition_zone(k.kind, found.spec ->> 'zone')
                       + CASE found.spec ->> 'by' WHEN 'day' THEN interval '1 day' ELSE interval '7 days' END INTO is_urgent
            FROM ebb.partition_kind(parent, found.spec ->> 'column', found.spec ->> 'unit') k (kind),
                 LATERAL ebb.missing_partitions(parent, k.kind, found.spec ->> 'by', 1, found.spec ->> 'zone') m
            GROUP BY k.kind;
            IF is_urgent THEN
                PERFORM set_config('lock_timeout', '2s', true);
            END IF;
        END IF;
        PERFORM pg_sleep(0.25);
    END LOOP;
    RAISE EXCEPTION 'no partition of % could be made: %', parent::regclass, COALESCE(who, 'no lock was to be had')
        USING ERRCODE = 'lock_not_available', HINT = 'call it again when that transaction is over';
END
$$;
