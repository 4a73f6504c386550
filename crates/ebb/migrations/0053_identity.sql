-- Where somebody publishes all tables, rows go only from tables that say how to tell them apart: Ebb's own, too, and those without a key
-- by all that a row has.
DO $$
DECLARE
    one regclass;
BEGIN
    FOR one IN SELECT c.oid FROM pg_catalog.pg_class c
               WHERE c.relnamespace = 'ebb'::regnamespace AND c.relkind IN ('r', 'p') AND c.relpersistence = 'p' AND c.relreplident = 'd'
                 AND NOT EXISTS (SELECT FROM pg_catalog.pg_index i WHERE i.indrelid = c.oid AND i.indisprimary)
    LOOP
        EXECUTE pg_catalog.format('ALTER TABLE %s REPLICA IDENTITY FULL', one);
    END LOOP;
END
$$;

CREATE OR REPLACE FUNCTION ebb.event_history_extend(since timestamptz DEFAULT ebb.now(), days integer DEFAULT 7) RETURNS integer
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
            EXECUTE format('ALTER TABLE ebb.%I REPLICA IDENTITY FULL', part);
            EXECUTE format('ALTER TABLE ebb.event_history ATTACH PARTITION ebb.%I FOR VALUES FROM (%L) TO (%L)',
                           part, first, first + interval '1 day');
            made := made + 1;
        END IF;
    END LOOP;
    RETURN made;
END
$$;

-- Numbers of transactions count where they were given, and in a restored dump they are others'.
ALTER TABLE ebb.deletion ADD COLUMN written_in text;
UPDATE ebb.deletion SET written_in = ebb.home() WHERE writers <> '{}' OR partly <> '{}';

-- As before, and cheaper for terms without months, which most are: it is asked several times for everybody who is erased.
CREATE OR REPLACE FUNCTION ebb.later(moment timestamptz, term interval, zone text) RETURNS timestamptz
LANGUAGE sql STABLE PARALLEL SAFE AS $$
    SELECT CASE WHEN pg_catalog.date_trunc('month', term) = interval '0'
                THEN (moment AT TIME ZONE 'UTC' + term) AT TIME ZONE 'UTC'
                ELSE (((moment + pg_catalog.make_interval(secs => (extract(epoch FROM term - pg_catalog.make_interval(
                           months => (extract(year FROM term) * 12 + extract(month FROM term))::int)))::float8))
                       AT TIME ZONE zone)
                      + pg_catalog.make_interval(months => (extract(year FROM term) * 12 + extract(month FROM term))::int))
                     AT TIME ZONE zone END
$$;
