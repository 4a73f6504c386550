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
