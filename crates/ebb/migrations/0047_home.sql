-- A table's number means nothing in a database that a dump was restored into: what is known by one says where that was.

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
