-- Splitting a partition into its periods. The parts are filled beside it, unseen, while a trigger notes the keys of all
-- that changes; then they take its place. The log holds keys and no rows, and whoever applies it reads the row as it is
-- by then: so the order of entries does not matter, nor how often one is applied, nor what a writer's snapshot can see.
CREATE TABLE ebb.split (
    relation        text        PRIMARY KEY,                  -- schema.table, the partitioned table
    relid           oid         NOT NULL,                     -- the partition that is split
    state           text        NOT NULL DEFAULT 'splitting', -- splitting | split | undone (empty again, for a rollback)
    step            integer     NOT NULL DEFAULT 0,           -- steps that are done
    pages           bigint,                                   -- pages to copy: what comes later is in the log
    page            bigint      NOT NULL DEFAULT 0,           -- pages that are copied
    plan            jsonb       NOT NULL,
    holder_pid      integer,
    holder_start    timestamptz,
    started_at      timestamptz NOT NULL DEFAULT clock_timestamp(),
    changed_at      timestamptz NOT NULL DEFAULT clock_timestamp()
);

-- A table with everything that a partition has, not attached yet. Storage parameters are those of a sibling, because a
-- partitioned table has none.
CREATE FUNCTION ebb.partition_table(parent oid, sibling oid, partition_name text) RETURNS oid
LANGUAGE plpgsql SET search_path = pg_catalog SET TimeZone = 'UTC' AS $$
DECLARE
    p record;
    full_name text;
    made oid;
    options text;
    one record;
BEGIN
    SELECT n.nspname, c.relowner, c.relreplident, s.spcname INTO STRICT p
    FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace LEFT JOIN pg_tablespace s ON s.oid = c.reltablespace
    WHERE c.oid = parent;
    full_name := format('%I.%I', p.nspname, partition_name);
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
    IF p.relreplident IN ('f', 'n') THEN
        EXECUTE format('ALTER TABLE %s REPLICA IDENTITY %s', full_name, CASE p.relreplident WHEN 'f' THEN 'FULL' ELSE 'NOTHING' END);
    END IF;
    RETURN made;
END
$$;

-- The same partition as before, by way of the table above: attached at once (SHARE UPDATE EXCLUSIVE on the parent: reads
-- and writes go on).
CREATE OR REPLACE FUNCTION ebb.create_partition(parent oid, partition_name text, bound_from text, bound_to text) RETURNS oid
LANGUAGE plpgsql SET search_path = pg_catalog SET TimeZone = 'UTC' AS $$
DECLARE
    made oid := ebb.partition_table(parent, (
        SELECT i.inhrelid FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
        WHERE i.inhparent = parent AND c.relkind = 'r' ORDER BY i.inhrelid DESC LIMIT 1), partition_name);
BEGIN
    EXECUTE format('ALTER TABLE %s ATTACH PARTITION %s FOR VALUES FROM (%s) TO (%s)', parent::regclass, made::regclass,
        CASE WHEN bound_from = 'MINVALUE' THEN bound_from ELSE quote_literal(bound_from) END,
        CASE WHEN bound_to = 'MAXVALUE' THEN bound_to ELSE quote_literal(bound_to) END);
    PERFORM ebb.copy_replica_identity(parent, made);
    RETURN made;
END
$$;

-- A partition whose rows are known by an index of its parent's: by its own index that belongs to that one.
CREATE FUNCTION ebb.copy_replica_identity(parent oid, partition oid) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog AS $$
DECLARE
    name text := (
        SELECT ic.relname FROM pg_index x JOIN pg_inherits h ON h.inhparent = x.indexrelid
        JOIN pg_index xc ON xc.indexrelid = h.inhrelid AND xc.indrelid = partition JOIN pg_class ic ON ic.oid = xc.indexrelid
        WHERE x.indrelid = parent AND x.indisreplident AND (SELECT c.relreplident FROM pg_class c WHERE c.oid = parent) = 'i');
BEGIN
    IF name IS NOT NULL THEN
        EXECUTE format('ALTER TABLE %s REPLICA IDENTITY USING INDEX %I', partition::regclass, name);
    END IF;
END
$$;

-- Makes the parts equal to the partition for up to so many noted changes; how many. Each statement sees what was
-- committed when it began, and the rows are read after the entries were: an entry that is gone has been seen to, and
-- whatever changes later has an entry of its own. The entries are found by the log's key, rows by the partition's.
CREATE FUNCTION ebb.split_apply(split text, at_most int) RETURNS int
LANGUAGE plpgsql SET search_path = pg_catalog SET TimeZone = 'UTC'
SET enable_hashjoin = off SET enable_mergejoin = off AS $$
DECLARE
    p jsonb;
    ids int8[];
    truncated boolean;
    part record;
    target text;
    keys text;
BEGIN
    SELECT s.plan INTO STRICT p FROM ebb.split s WHERE s.relation = split;
    EXECUTE format('SELECT array_agg(x.ebb_id) FROM (SELECT l.ebb_id FROM %s l ORDER BY l.ebb_id LIMIT %s) x', p ->> 'log', at_most) INTO ids;
    IF ids IS NULL THEN
        RETURN 0;
    END IF;
    EXECUTE format('SELECT EXISTS (SELECT FROM %s l WHERE l.ebb_id = ANY ($1) AND l.%I IS NULL)', p ->> 'log', p ->> 'column') INTO truncated USING ids;
    IF truncated THEN
        -- An entry without a key is a TRUNCATE: all that is there now was written after it, and noted.
        FOR target IN SELECT e ->> 'relation' FROM jsonb_array_elements(p -> 'parts') e LOOP
            EXECUTE format('TRUNCATE %s', target);
        END LOOP;
    END IF;
    FOR part IN EXECUTE format('SELECT DISTINCT width_bucket(l.%1$I, %2$s) AS n FROM %3$s l WHERE l.ebb_id = ANY ($1) AND l.%1$I IS NOT NULL',
                               p ->> 'column', p ->> 'thresholds', p ->> 'log') USING ids
    LOOP
        target := p -> 'parts' -> part.n ->> 'relation';
        keys := format('(SELECT DISTINCT %s FROM %s l WHERE l.ebb_id = ANY ($1) AND width_bucket(l.%I, %s) = %s) l',
                       p ->> 'log_key', p ->> 'log', p ->> 'column', p ->> 'thresholds', part.n);
        -- Parts with foreign keys are also deleted from by the trigger: whoever holds the row goes first.
        IF (p ->> 'locks')::boolean THEN
            EXECUTE format('SELECT count(*) FROM (SELECT FROM %s JOIN ONLY %s h ON %s FOR SHARE OF h) x', keys, p ->> 'source', p ->> 'same_source') USING ids;
        END IF;
        EXECUTE format('DELETE FROM ONLY %s c USING %s WHERE %s', target, keys, p ->> 'same_copy') USING ids;
        EXECUTE format('INSERT INTO %s (%s) SELECT %s FROM %s JOIN ONLY %s h ON %s', target, p ->> 'columns', p ->> 'source_columns', keys,
                       p ->> 'source', p ->> 'same_source') USING ids;
    END LOOP;
    EXECUTE format('DELETE FROM %s l WHERE l.ebb_id = ANY ($1)', p ->> 'log') USING ids;
    RETURN cardinality(ids);
END
$$;

-- Under a lock that keeps writers out: applies all that is left, or gives up (EB001) where that would take too long.
CREATE FUNCTION ebb.split_settle(split text, at_most int) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog AS $$
DECLARE
    log text := (SELECT s.plan ->> 'log' FROM ebb.split s WHERE s.relation = split);
    entries bigint;
BEGIN
    EXECUTE format('SELECT count(*) FROM (SELECT FROM %s LIMIT %s) x', log, at_most + 1) INTO entries;
    IF entries > at_most THEN
        RAISE EXCEPTION 'more than % changes of % are not applied yet', at_most, split USING ERRCODE = 'EB001';
    END IF;
    PERFORM ebb.split_apply(split, at_most);
END
$$;
