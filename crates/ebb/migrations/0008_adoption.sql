-- Tables on their way to being partitioned, or back. The plan is written before the first statement, as SQL, together
-- with what takes it back: a run that was killed goes on from the row, whatever the catalog looks like by then.
CREATE TABLE ebb.adoption (
    relation        text        PRIMARY KEY,                 -- schema.table, as people see it before and after
    relid           oid         NOT NULL,                    -- the table that was there first, whatever it is called
    policy          text        NOT NULL,
    state           text        NOT NULL DEFAULT 'adopting', -- adopting | adopted | rolling back | rolled back
    step            integer     NOT NULL DEFAULT 0,          -- steps of the state's plan that are done
    plan            jsonb       NOT NULL,
    holder_pid      integer,                                 -- the session at work, while it is
    holder_start    timestamptz,
    started_at      timestamptz NOT NULL DEFAULT clock_timestamp(),
    changed_at      timestamptz NOT NULL DEFAULT clock_timestamp()
);

-- Keeps a key unique over a window where a partitioned table's own keys cannot, by trigger: before a row goes in, its
-- key is claimed in ebb.once_key, in the same transaction. Of equal keys one gets in; the others wait for its end and get
-- unique_violation (23505), as from an index. A deleted row gives its key back. Arguments: namespace, term, the column
-- that the table is partitioned by, then the key's columns. A key with a NULL is not guarded, as an index would not.
-- The owner's rights: applications need none on Ebb's tables.
CREATE FUNCTION ebb.guard_key(fields jsonb, columns text[]) RETURNS text
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog AS $$
    SELECT CASE WHEN bool_or(fields ->> c IS NULL) THEN NULL
                WHEN octet_length(jsonb_agg(fields ->> c ORDER BY n)::text) <= 1024 THEN jsonb_agg(fields ->> c ORDER BY n)::text
                ELSE encode(sha256(convert_to(jsonb_agg(fields ->> c ORDER BY n)::text, 'UTF8')), 'hex') END
    FROM unnest(columns) WITH ORDINALITY u (c, n)
$$;

CREATE FUNCTION ebb.guard() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog AS $$
DECLARE
    columns text[] := TG_ARGV[3:];
    before_key text := CASE WHEN TG_OP <> 'INSERT' THEN ebb.guard_key(to_jsonb(OLD), columns) END;
    after_key text := CASE WHEN TG_OP <> 'DELETE' THEN ebb.guard_key(to_jsonb(NEW), columns) END;
BEGIN
    IF before_key IS NOT DISTINCT FROM after_key AND TG_OP = 'UPDATE' THEN
        RETURN NEW;
    END IF;
    IF before_key IS NOT NULL THEN
        DELETE FROM ebb.once_key k WHERE k.namespace = TG_ARGV[0] AND k.key = before_key;
    END IF;
    IF after_key IS NOT NULL THEN
        IF ebb.once(TG_ARGV[0], after_key, TG_ARGV[1]::interval) <> 'first' THEN
            RAISE unique_violation USING MESSAGE = format('duplicate key value violates guard %I of %I.%I', TG_NAME, TG_TABLE_SCHEMA, TG_TABLE_NAME),
                DETAIL = format('Key (%s)=(%s) already exists.', array_to_string(columns, ', '),
                    (SELECT string_agg(to_jsonb(NEW) ->> c, ', ' ORDER BY n) FROM unnest(columns) WITH ORDINALITY u (c, n)));
        END IF;
        -- When the row is from: whoever knows only the key can name its partition.
        UPDATE ebb.once_key k SET result = to_jsonb(to_jsonb(NEW) ->> TG_ARGV[2]) WHERE k.namespace = TG_ARGV[0] AND k.key = after_key;
    END IF;
    RETURN CASE WHEN TG_OP = 'DELETE' THEN OLD ELSE NEW END;
END
$$;

-- While a rollback drains, rows of the former partitions are children of the table: visible, but not in its unique
-- index. This trigger stands in for the index: a row whose key one of them has is refused as the index would refuse it.
-- Arguments: the key's columns.
CREATE FUNCTION ebb.no_twin() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog AS $$
DECLARE
    child record;
    twin boolean;
    condition text := (SELECT string_agg(format('c.%1$I = ($1).%1$I', k), ' AND ') FROM unnest(TG_ARGV) k);
BEGIN
    FOR child IN SELECT i.inhrelid FROM pg_inherits i WHERE i.inhparent = TG_RELID LOOP
        EXECUTE format('SELECT EXISTS (SELECT FROM ONLY %s c WHERE %s)', child.inhrelid::regclass, condition) INTO twin USING NEW;
        IF twin THEN
            RAISE unique_violation USING MESSAGE = format('duplicate key value violates a unique key of %I.%I', TG_TABLE_SCHEMA, TG_TABLE_NAME),
                DETAIL = format('Key (%s) already exists.', array_to_string(TG_ARGV, ', '));
        END IF;
    END LOOP;
    RETURN NEW;
END
$$;

-- The same answers as before, for tables with very many partitions: no call for each bound, and one look at all of them
-- instead of one for each period.
CREATE OR REPLACE FUNCTION ebb.partition_bounds(relation oid, kind text)
RETURNS TABLE (oid oid, schema_name text, table_name text, relkind text, lower_bound timestamp, upper_bound timestamp, pending boolean)
LANGUAGE sql STABLE SET search_path = pg_catalog SET TimeZone = 'UTC' AS $$
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
                WHEN kind = 's' THEN to_timestamp(b.ends[1]::float8) AT TIME ZONE 'UTC'
                WHEN kind = 'ms' THEN to_timestamp(b.ends[1]::float8 / 1000) AT TIME ZONE 'UTC'
                WHEN kind = 'uuid' THEN ebb.partition_moment(kind, b.ends[1]) END,
           CASE WHEN b.range IS NULL THEN NULL WHEN b.ends[2] = 'MINVALUE' THEN timestamp '-infinity' WHEN b.ends[2] = 'MAXVALUE' THEN timestamp 'infinity'
                WHEN kind = 'timestamptz' THEN b.ends[2]::timestamptz AT TIME ZONE 'UTC'
                WHEN kind IN ('timestamp', 'date') THEN b.ends[2]::timestamp
                WHEN kind = 's' THEN to_timestamp(b.ends[2]::float8) AT TIME ZONE 'UTC'
                WHEN kind = 'ms' THEN to_timestamp(b.ends[2]::float8 / 1000) AT TIME ZONE 'UTC'
                WHEN kind = 'uuid' THEN ebb.partition_moment(kind, b.ends[2]) END,
           b.inhdetachpending
    FROM split b
$$;

CREATE OR REPLACE FUNCTION ebb.missing_partitions(parent oid, kind text, by_period text, ahead int, zone text)
RETURNS TABLE (start timestamp, lower_bound timestamp, upper_bound timestamp)
LANGUAGE sql STABLE SET search_path = pg_catalog SET TimeZone = 'UTC' AS $$
    WITH here AS MATERIALIZED (
        SELECT date_trunc(by_period, ebb.now() AT TIME ZONE ebb.partition_zone(kind, zone)) AS this, ('1 ' || by_period)::interval AS step
    ), covered AS MATERIALIZED (
        SELECT COALESCE(range_agg(tsrange(b.lower_bound, b.upper_bound)), '{}') AS all_of_it
        FROM ebb.partition_bounds(parent, kind) b WHERE b.lower_bound IS NOT NULL
    ), uncovered AS MATERIALIZED (
        SELECT here.this + n * here.step AS start, here.this + (n + 1) * here.step AS upper_bound, covered.all_of_it
        FROM here, covered, generate_series(0, ahead) n
        WHERE NOT tsrange(here.this + n * here.step, here.this + (n + 1) * here.step) <@ covered.all_of_it
    )
    -- What is free of a period begins after the last partition that reaches into it.
    SELECT u.start, greatest(u.start, upper(u.all_of_it * tsmultirange(tsrange(u.start, u.upper_bound)))), u.upper_bound
    FROM uncovered u
    WHERE greatest(u.start, upper(u.all_of_it * tsmultirange(tsrange(u.start, u.upper_bound)))) < u.upper_bound
    ORDER BY u.start
$$;
