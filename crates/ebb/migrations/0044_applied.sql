-- That changes were applied to the parts outlives the process that applied them: who looks through a view of the tables that
-- is older does not see them there, so the parts are not put in place before the last of those has ended.

-- Whether changes were applied since older views were last waited for. Of a split that is under way nobody knows.
ALTER TABLE ebb.split ADD COLUMN applied boolean NOT NULL DEFAULT true;
ALTER TABLE ebb.split ALTER COLUMN applied SET DEFAULT false;

-- Makes the parts equal to the partition for up to so many noted changes; how many. Each statement sees what was
-- committed when it began, and the rows are read after the entries were: an entry that is gone has been seen to, and
-- whatever changes later has an entry of its own. The entries are found by the log's key, rows by the partition's.
CREATE OR REPLACE FUNCTION ebb.split_apply(split text, at_most int) RETURNS int
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
    UPDATE ebb.split s SET applied = true WHERE s.relation = split AND NOT s.applied;
    RETURN cardinality(ids);
END
$$;
