-- Partitions by time: which exist, which must, how one is made. The calendar lives here and nowhere else, so that the
-- node, the command line and whoever calls ebb.ensure_partitions from a scheduler of their own make the same ones.
-- A kind is what the column can say: timestamptz | timestamp | date | uuid (version 7) | s | ms (integers since 1970).
-- Bounds are compared as timestamps without zone: UTC, except for timestamp and date, whose clock is the policy's zone.

-- Partitions that a policy took out of their table: what is about to go, and what waits out `detached_for`.
CREATE TABLE ebb.detached (
    relid           oid         PRIMARY KEY,
    policy          text        NOT NULL,
    parent          text        NOT NULL,                    -- schema.table, for people
    relation        text        NOT NULL,
    lower_bound     timestamp   NOT NULL,
    upper_bound     timestamp   NOT NULL,
    state           text        NOT NULL DEFAULT 'detaching', -- detaching | detached
    decided_at      timestamptz NOT NULL DEFAULT clock_timestamp(),
    detached_at     timestamptz                              -- by ebb.now(): `detached_for` counts from here
);

-- What a column of a table can say about time; null when it cannot.
CREATE FUNCTION ebb.partition_kind(relation oid, column_name text, unit text) RETURNS text
LANGUAGE sql STABLE SET search_path = pg_catalog AS $$
    WITH RECURSIVE base AS (
        SELECT t.oid, t.typtype, t.typbasetype
        FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid
        WHERE a.attrelid = relation AND a.attname = column_name AND a.attnum > 0 AND NOT a.attisdropped
        UNION ALL
        SELECT t.oid, t.typtype, t.typbasetype FROM base JOIN pg_type t ON t.oid = base.typbasetype WHERE base.typtype = 'd'
    )
    SELECT CASE format_type(base.oid, NULL)
        WHEN 'timestamp with time zone' THEN 'timestamptz'
        WHEN 'timestamp without time zone' THEN 'timestamp'
        WHEN 'date' THEN 'date'
        WHEN 'uuid' THEN 'uuid'
        WHEN 'bigint' THEN COALESCE(unit, 's')
        WHEN 'integer' THEN CASE WHEN COALESCE(unit, 's') = 's' THEN 's' END
    END
    FROM base WHERE base.typtype <> 'd'
$$;

-- The zone whose calendar a kind follows.
CREATE FUNCTION ebb.partition_zone(kind text, zone text) RETURNS text
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog AS $$
    SELECT CASE WHEN kind IN ('timestamp', 'date') THEN COALESCE(zone, 'UTC') ELSE 'UTC' END
$$;

-- A moment of the calendar as the constant that a bound of this kind has.
CREATE FUNCTION ebb.partition_literal(kind text, moment timestamp) RETURNS text
LANGUAGE sql STABLE SET search_path = pg_catalog AS $$
    SELECT CASE kind
        WHEN 'timestamptz' THEN to_char(moment, 'YYYY-MM-DD HH24:MI:SS') || '+00'
        WHEN 'timestamp' THEN to_char(moment, 'YYYY-MM-DD HH24:MI:SS')
        WHEN 'date' THEN to_char(moment, 'YYYY-MM-DD')
        WHEN 's' THEN extract(epoch FROM moment)::int8::text
        WHEN 'ms' THEN (extract(epoch FROM moment) * 1000)::int8::text
        -- The smallest uuid of that millisecond.
        WHEN 'uuid' THEN (lpad(to_hex((extract(epoch FROM moment) * 1000)::int8), 12, '0') || repeat('0', 20))::uuid::text
    END
$$;

-- The other way round: what a bound says, as the catalog prints it in UTC.
CREATE FUNCTION ebb.partition_moment(kind text, bound text) RETURNS timestamp
LANGUAGE sql STABLE SET search_path = pg_catalog SET TimeZone = 'UTC' AS $$
    SELECT CASE WHEN bound = 'MINVALUE' THEN timestamp '-infinity' WHEN bound = 'MAXVALUE' THEN timestamp 'infinity'
        ELSE CASE kind
            WHEN 'timestamptz' THEN btrim(bound, '''')::timestamptz AT TIME ZONE 'UTC'
            WHEN 'timestamp' THEN btrim(bound, '''')::timestamp
            WHEN 'date' THEN btrim(bound, '''')::date::timestamp
            WHEN 's' THEN to_timestamp(btrim(bound, '''')::float8) AT TIME ZONE 'UTC'
            WHEN 'ms' THEN to_timestamp(btrim(bound, '''')::float8 / 1000) AT TIME ZONE 'UTC'
            WHEN 'uuid' THEN to_timestamp(('x' || left(replace(btrim(bound, ''''), '-', ''), 12))::bit(48)::int8 / 1000.0) AT TIME ZONE 'UTC'
        END
    END
$$;

-- The partitions of a table, with their bounds; those of a DEFAULT partition are null. Reads the catalog only: no sizes,
-- no rows, so that a thousand of them cost little.
CREATE FUNCTION ebb.partition_bounds(relation oid, kind text)
RETURNS TABLE (oid oid, schema_name text, table_name text, relkind text, lower_bound timestamp, upper_bound timestamp, pending boolean)
LANGUAGE sql STABLE SET search_path = pg_catalog SET TimeZone = 'UTC' AS $$
    SELECT c.oid, n.nspname::text, c.relname::text, c.relkind::text,
           ebb.partition_moment(kind, bound[1]), ebb.partition_moment(kind, bound[2]), i.inhdetachpending
    FROM pg_inherits i
    JOIN pg_class c ON c.oid = i.inhrelid
    JOIN pg_namespace n ON n.oid = c.relnamespace
    LEFT JOIN LATERAL regexp_match(pg_get_expr(c.relpartbound, c.oid), '^FOR VALUES FROM \((.*)\) TO \((.*)\)$') bound ON true
    WHERE i.inhparent = relation
$$;

-- What a partition is called: table and period, within 63 bytes. A name that is too long, or that something else has,
-- gives way to one with eight digits that belong to this table alone.
CREATE FUNCTION ebb.partition_name(relation oid, suffix text, plain boolean DEFAULT true) RETURNS text
LANGUAGE plpgsql STABLE SET search_path = pg_catalog AS $$
DECLARE
    base text;
    tag text;
BEGIN
    SELECT c.relname, substr(md5(n.nspname || '.' || c.relname), 1, 8) INTO base, tag
    FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = relation;
    IF plain AND octet_length(base || '_' || suffix) <= 63 THEN
        RETURN base || '_' || suffix;
    END IF;
    WHILE octet_length(base || '_' || tag || '_' || suffix) > 63 LOOP
        base := left(base, -1);
    END LOOP;
    RETURN base || '_' || tag || '_' || suffix;
END
$$;

CREATE FUNCTION ebb.partition_suffix(by_period text, start timestamp) RETURNS text
LANGUAGE sql STABLE SET search_path = pg_catalog AS $$
    SELECT to_char(start, CASE by_period WHEN 'day' THEN 'YYYY_MM_DD' WHEN 'week' THEN 'IYYY"_w"IW' WHEN 'month' THEN 'YYYY_MM' ELSE 'YYYY' END)
$$;

-- Gives a table the grants of another, and no others.
CREATE FUNCTION ebb.copy_grants(source oid, target oid) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog AS $$
DECLARE
    one record;
BEGIN
    FOR one IN
        SELECT DISTINCT CASE acl.grantee WHEN 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(acl.grantee)) END AS who
        FROM pg_class c, aclexplode(c.relacl) acl WHERE c.oid = target AND acl.grantee <> c.relowner
    LOOP
        EXECUTE format('REVOKE ALL ON %s FROM %s', target::regclass, one.who);
    END LOOP;
    FOR one IN
        SELECT CASE acl.grantee WHEN 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(acl.grantee)) END AS who,
               acl.privilege_type, acl.is_grantable, NULL::text AS column_name
        FROM pg_class c, aclexplode(c.relacl) acl WHERE c.oid = source AND acl.grantee <> c.relowner
        UNION ALL
        SELECT CASE acl.grantee WHEN 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(acl.grantee)) END,
               acl.privilege_type, acl.is_grantable, a.attname
        FROM pg_attribute a, aclexplode(a.attacl) acl WHERE a.attrelid = source AND NOT a.attisdropped
    LOOP
        EXECUTE format('GRANT %s%s ON %s TO %s%s', one.privilege_type, COALESCE(' (' || quote_ident(one.column_name) || ')', ''),
            target::regclass, one.who, CASE WHEN one.is_grantable THEN ' WITH GRANT OPTION' ELSE '' END);
    END LOOP;
END
$$;

-- Gives a table the row-level security of another: switches and policies. An expression names its table's columns by
-- number, so both tables must have them in the same places wherever the text would name the table.
CREATE FUNCTION ebb.copy_row_security(source oid, target oid) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog AS $$
DECLARE
    one record;
    same boolean;
BEGIN
    SELECT NOT EXISTS (
        SELECT FROM pg_attribute a FULL JOIN pg_attribute b ON b.attrelid = target AND b.attnum = a.attnum
        WHERE a.attrelid = source AND a.attnum > 0 AND NOT a.attisdropped AND a.attname IS DISTINCT FROM b.attname
    ) INTO same;
    FOR one IN
        SELECT p.polname, p.polpermissive, p.polcmd,
               (SELECT string_agg(CASE r WHEN 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(r)) END, ', ') FROM unnest(p.polroles) r) AS roles,
               pg_get_expr(p.polqual, CASE WHEN same THEN target ELSE source END) AS using_expr,
               pg_get_expr(p.polwithcheck, CASE WHEN same THEN target ELSE source END) AS check_expr
        FROM pg_policy p WHERE p.polrelid = source ORDER BY p.polname
    LOOP
        BEGIN
            EXECUTE format('CREATE POLICY %I ON %s AS %s FOR %s TO %s%s%s', one.polname, target::regclass,
                CASE WHEN one.polpermissive THEN 'PERMISSIVE' ELSE 'RESTRICTIVE' END,
                CASE one.polcmd WHEN 'r' THEN 'SELECT' WHEN 'a' THEN 'INSERT' WHEN 'w' THEN 'UPDATE' WHEN 'd' THEN 'DELETE' ELSE 'ALL' END,
                one.roles, COALESCE(' USING (' || one.using_expr || ')', ''), COALESCE(' WITH CHECK (' || one.check_expr || ')', ''));
        EXCEPTION WHEN undefined_table OR undefined_column THEN
            RAISE EXCEPTION 'policy % of % cannot be copied to %: it names its table, whose columns are in other places (some were dropped)',
                quote_ident(one.polname), source::regclass, target::regclass
                USING HINT = 'write the policy so that it does not name its own table, for example with a function';
        END;
    END LOOP;
    IF (SELECT relrowsecurity FROM pg_class WHERE pg_class.oid = source) THEN
        EXECUTE format('ALTER TABLE %s ENABLE ROW LEVEL SECURITY', target::regclass);
    END IF;
    IF (SELECT relforcerowsecurity FROM pg_class WHERE pg_class.oid = source) THEN
        EXECUTE format('ALTER TABLE %s FORCE ROW LEVEL SECURITY', target::regclass);
    END IF;
END
$$;

-- Makes one partition: a table of its own first, with everything that its siblings have, then attached (SHARE UPDATE
-- EXCLUSIVE on the parent: reads and writes go on). Storage parameters are those of the newest sibling, because a
-- partitioned table has none.
CREATE FUNCTION ebb.create_partition(parent oid, partition_name text, bound_from text, bound_to text) RETURNS oid
LANGUAGE plpgsql SET search_path = pg_catalog SET TimeZone = 'UTC' AS $$
DECLARE
    p record;
    full_name text;
    made oid;
    sibling oid;
    options text;
    one record;
BEGIN
    SELECT c.relname, n.nspname, c.relowner, c.relreplident, s.spcname INTO STRICT p
    FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace LEFT JOIN pg_tablespace s ON s.oid = c.reltablespace
    WHERE c.oid = parent;
    full_name := format('%I.%I', p.nspname, partition_name);
    SELECT i.inhrelid INTO sibling FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
    WHERE i.inhparent = parent AND c.relkind = 'r' ORDER BY i.inhrelid DESC LIMIT 1;
    SELECT string_agg(o, ', ') INTO options FROM (
        SELECT format('%I = %L', split_part(o, '=', 1), substr(o, strpos(o, '=') + 1)) AS o
        FROM pg_class c, unnest(c.reloptions) o WHERE c.oid = sibling
        UNION ALL
        SELECT format('toast.%I = %L', split_part(o, '=', 1), substr(o, strpos(o, '=') + 1))
        FROM pg_class c JOIN pg_class t ON t.oid = c.reltoastrelid, unnest(t.reloptions) o WHERE c.oid = sibling
    ) x;
    EXECUTE format('CREATE TABLE %s (LIKE %s INCLUDING DEFAULTS INCLUDING GENERATED INCLUDING CONSTRAINTS INCLUDING STORAGE '
                   'INCLUDING COMPRESSION INCLUDING STATISTICS)%s%s', full_name, parent::regclass,
        COALESCE(' WITH (' || options || ')', ''), COALESCE(' TABLESPACE ' || quote_ident(p.spcname), ''));
    made := to_regclass(full_name);
    IF p.relowner <> (SELECT relowner FROM pg_class WHERE pg_class.oid = made) THEN
        EXECUTE format('ALTER TABLE %s OWNER TO %I', full_name, pg_get_userbyid(p.relowner));
    END IF;
    FOR one IN
        SELECT a.attname, a.attstattarget FROM pg_attribute a
        WHERE a.attrelid = parent AND a.attnum > 0 AND NOT a.attisdropped AND a.attstattarget >= 0
    LOOP
        EXECUTE format('ALTER TABLE %s ALTER COLUMN %I SET STATISTICS %s', full_name, one.attname, one.attstattarget);
    END LOOP;
    PERFORM ebb.copy_row_security(parent, made);
    PERFORM ebb.copy_grants(parent, made);
    EXECUTE format('ALTER TABLE %s ATTACH PARTITION %s FOR VALUES FROM (%s) TO (%s)', parent::regclass, full_name,
        CASE WHEN bound_from = 'MINVALUE' THEN bound_from ELSE quote_literal(bound_from) END,
        CASE WHEN bound_to = 'MAXVALUE' THEN bound_to ELSE quote_literal(bound_to) END);
    IF p.relreplident IN ('f', 'n') THEN
        EXECUTE format('ALTER TABLE %s REPLICA IDENTITY %s', full_name, CASE p.relreplident WHEN 'f' THEN 'FULL' ELSE 'NOTHING' END);
    ELSIF p.relreplident = 'i' THEN
        EXECUTE (SELECT format('ALTER TABLE %s REPLICA IDENTITY USING INDEX %I', full_name, ic.relname)
                 FROM pg_index x JOIN pg_inherits h ON h.inhparent = x.indexrelid
                 JOIN pg_index xc ON xc.indexrelid = h.inhrelid AND xc.indrelid = made JOIN pg_class ic ON ic.oid = xc.indexrelid
                 WHERE x.indrelid = parent AND x.indisreplident);
    END IF;
    RETURN made;
END
$$;

-- The periods from the current one to the last one ahead that no partition covers, or only their beginning.
CREATE FUNCTION ebb.missing_partitions(parent oid, kind text, by_period text, ahead int, zone text)
RETURNS TABLE (start timestamp, lower_bound timestamp, upper_bound timestamp)
LANGUAGE sql STABLE SET search_path = pg_catalog SET TimeZone = 'UTC' AS $$
    WITH bounds AS MATERIALIZED (
        SELECT b.lower_bound, b.upper_bound FROM ebb.partition_bounds(parent, kind) b
    ), period AS (
        SELECT date_trunc(by_period, ebb.now() AT TIME ZONE ebb.partition_zone(kind, zone)) + n * ('1 ' || by_period)::interval AS start,
               date_trunc(by_period, ebb.now() AT TIME ZONE ebb.partition_zone(kind, zone)) + (n + 1) * ('1 ' || by_period)::interval AS upper_bound
        FROM generate_series(0, ahead) n
    )
    SELECT p.start, greatest(p.start, c.covered), p.upper_bound
    FROM period p
    LEFT JOIN LATERAL (
        SELECT max(b.upper_bound) AS covered FROM bounds b WHERE b.lower_bound < p.upper_bound AND b.upper_bound > p.start
    ) c ON true
    WHERE greatest(p.start, c.covered) < p.upper_bound
    ORDER BY p.start
$$;

-- Makes the partitions that are missing from the current period to the last one ahead, at most so many; how many it made.
-- Two callers at once: the second waits (the lock is the one that attaching takes) and finds nothing left to do.
CREATE FUNCTION ebb.add_partitions(parent oid, column_name text, by_period text, ahead int, unit text, zone text, at_most int)
RETURNS int LANGUAGE plpgsql SET search_path = pg_catalog SET TimeZone = 'UTC' AS $$
DECLARE
    kind text := ebb.partition_kind(parent, column_name, unit);
    made int := 0;
    one record;
    suffix text;
    new_name text;
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
        suffix := ebb.partition_suffix(by_period, one.start);
        new_name := ebb.partition_name(parent, suffix);
        IF EXISTS (SELECT FROM pg_class c JOIN pg_class t ON t.oid = parent AND t.relnamespace = c.relnamespace WHERE c.relname = new_name) THEN
            new_name := ebb.partition_name(parent, suffix, false);
        END IF;
        PERFORM ebb.create_partition(parent, new_name, ebb.partition_literal(kind, one.lower_bound), ebb.partition_literal(kind, one.upper_bound));
        made := made + 1;
    END LOOP;
    RETURN made;
END
$$;

-- The table that a policy names, as `ebb apply` reads it: literally first, like SQL after.
CREATE FUNCTION ebb.policy_table(typed text) RETURNS oid
LANGUAGE sql STABLE SET search_path = pg_catalog AS $$
    SELECT COALESCE(
        (SELECT c.oid FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
         WHERE c.relkind IN ('r', 'p') AND n.nspname || '.' || c.relname = typed LIMIT 1),
        to_regclass(typed)::oid, to_regclass('public.' || typed)::oid, to_regclass('public.' || quote_ident(typed))::oid)
$$;

-- For those who keep partitions ahead with a scheduler of their own: makes what the policy is missing, all of it; how
-- many. Needs the rights of the table's owner.
CREATE FUNCTION ebb.ensure_partitions(policy text) RETURNS int
LANGUAGE plpgsql SET search_path = pg_catalog SET lock_timeout = '500ms' AS $$
DECLARE
    found record;
    parent oid;
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
    RETURN ebb.add_partitions(parent, found.spec ->> 'column', found.spec ->> 'by', COALESCE((found.spec ->> 'ahead')::int, 12),
        found.spec ->> 'unit', found.spec ->> 'zone', 2147483647);
END
$$;
COMMENT ON FUNCTION ebb.ensure_partitions(text) IS 'Makes the partitions that a policy is missing; returns how many';
