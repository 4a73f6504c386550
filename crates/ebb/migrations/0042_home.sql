-- Which database this is: in another one, a dump restored elsewhere, an oid is somebody else's.
CREATE FUNCTION ebb.home() RETURNS text
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT (SELECT s.system_identifier FROM pg_control_system() s) || '/' || (SELECT d.oid FROM pg_database d WHERE d.datname = current_database())
$$;

ALTER TABLE ebb.detached ADD COLUMN home text NOT NULL DEFAULT ebb.home();

-- What came here with a dump is found by its name, once; what is not there under it is forgotten.
CREATE FUNCTION ebb.rehome_detached() RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    strangers ebb.detached[] := ARRAY(SELECT d FROM ebb.detached d WHERE d.home <> ebb.home());
BEGIN
    IF cardinality(strangers) > 0 THEN
        DELETE FROM ebb.detached d WHERE d.home <> ebb.home();
        INSERT INTO ebb.detached (relid, policy, parent, relation, lower_bound, upper_bound, state, decided_at, detached_at)
        SELECT to_regclass(s.relation), s.policy, s.parent, s.relation, s.lower_bound, s.upper_bound, s.state, s.decided_at, s.detached_at
        FROM unnest(strangers) s
        WHERE to_regclass(s.relation) IS NOT NULL
        ON CONFLICT (relid) DO NOTHING;
    END IF;
END
$$;

-- The name of a table's partition, or one with digits of its own where that is too long or something has it, as often as something
-- does: tables and types share names.
CREATE OR REPLACE FUNCTION ebb.free_partition_name(relation oid, suffix text) RETURNS text
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    own record;
    base text;
    tag text;
    name text := ebb.partition_name(relation, suffix);
BEGIN
    SELECT c.relname, c.relnamespace, n.nspname INTO own
    FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = relation;
    FOR n IN 0..1000 LOOP
        IF NOT EXISTS (SELECT FROM pg_class c WHERE c.relname = name AND c.relnamespace = own.relnamespace)
           AND NOT EXISTS (SELECT FROM pg_type t WHERE t.typname = name AND t.typnamespace = own.relnamespace) THEN
            RETURN name;
        END IF;
        tag := substr(md5(own.nspname || '.' || own.relname || COALESCE(NULLIF(n, 0)::text, '')), 1, 8);
        base := own.relname;
        WHILE octet_length(base || '_' || tag || '_' || suffix) > 63 LOOP
            base := left(base, -1);
        END LOOP;
        name := base || '_' || tag || '_' || suffix;
    END LOOP;
    RETURN name;
END
$$;
