-- A table's number means nothing in a database that a dump was restored into: what is known by one says where that was. And
-- a partition finds a name however often its period had one.

-- Which database of which cluster this is. A restored dump has another one; a standby, and a copy of the files, have the same,
-- and the same numbers.
CREATE FUNCTION ebb.home() RETURNS text
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT s.system_identifier || '/' || d.oid FROM pg_control_system() s, pg_database d WHERE d.datname = current_database()
$$;

-- The table of a name with its schema, quoted where it must be; asked of the catalog, so that no right on the schema is needed.
CREATE FUNCTION ebb.table_named(label text) RETURNS oid
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT c.oid FROM parse_ident(label) i, pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE n.nspname = i[1] AND c.relname = i[2] AND c.relkind IN ('r', 'p')
$$;

ALTER TABLE ebb.detached ADD COLUMN home text NOT NULL DEFAULT ebb.home();
ALTER TABLE ebb.adoption ADD COLUMN home text NOT NULL DEFAULT ebb.home();
ALTER TABLE ebb.split ADD COLUMN home text NOT NULL DEFAULT ebb.home();

-- Of what was written before, a number counts only where its table has the name that goes with it.
UPDATE ebb.detached d SET home = '' WHERE ebb.table_named(d.relation) IS DISTINCT FROM d.relid;
UPDATE ebb.adoption a SET home = ''
WHERE a.relid NOT IN (SELECT c.oid FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
                      WHERE n.nspname = a.plan ->> 'schema' AND c.relname IN (a.plan ->> 'table', a.plan ->> 'history'));
UPDATE ebb.split s SET home = '' WHERE ebb.table_named(s.plan ->> 'source') IS DISTINCT FROM s.relid;

-- What a partition is called: table and period, within 63 bytes. A name that is too long, or that something else has,
-- gives way to one with eight digits that belong to this table alone, and to others of its own the next times.
DROP FUNCTION ebb.partition_name(oid, text, boolean);
CREATE FUNCTION ebb.partition_name(relation oid, suffix text, plain boolean DEFAULT true, again int DEFAULT 0) RETURNS text
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    base text;
    tag text;
BEGIN
    SELECT c.relname, substr(md5(n.nspname || '.' || c.relname || CASE WHEN again > 0 THEN '.' || again ELSE '' END), 1, 8) INTO base, tag
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

-- The first of these that nothing has: tables and types share names.
CREATE OR REPLACE FUNCTION ebb.free_partition_name(relation oid, suffix text) RETURNS text
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    namespace oid := (SELECT c.relnamespace FROM pg_class c WHERE c.oid = relation);
    name text := ebb.partition_name(relation, suffix);
    again int := 0;
BEGIN
    WHILE EXISTS (SELECT FROM pg_class c WHERE c.relname = name AND c.relnamespace = namespace)
       OR EXISTS (SELECT FROM pg_type t WHERE t.typname = name AND t.typnamespace = namespace) LOOP
        name := ebb.partition_name(relation, suffix, false, again);
        again := again + 1;
    END LOOP;
    RETURN name;
END
$$;

-- Makes a partition for every period that rows of another table are of: what a DEFAULT partition had, once it is out.
CREATE FUNCTION ebb.add_partitions_for(parent regclass, source regclass, column_name text, by_period text, unit text DEFAULT NULL)
RETURNS int LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET TimeZone = 'UTC' AS $$
DECLARE
    kind text := ebb.partition_kind(parent, column_name, unit);
    made int := 0;
    one record;
BEGIN
    FOR one IN EXECUTE format('SELECT p.start, p.start + %L::interval AS upper_bound
                               FROM (SELECT DISTINCT date_trunc(%L, ebb.partition_moment(%L, s.%I::text)) AS start FROM %s s) p ORDER BY 1',
                              '1 ' || by_period, by_period, kind, column_name, source) LOOP
        PERFORM ebb.add_derived_checks(
            ebb.create_partition(parent, ebb.free_partition_name(parent, ebb.partition_suffix(by_period, one.start)),
                                 ebb.partition_literal(kind, one.start), ebb.partition_literal(kind, one.upper_bound)),
            column_name, kind, one.start, one.upper_bound);
        made := made + 1;
    END LOOP;
    RETURN made;
END
$$;
