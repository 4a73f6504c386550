-- A column that is generated from the partition column (year_month) has one value in a period, but the server does not
-- know: a CHECK for each partition tells it, so that statements by that column alone read the partitions they need.

-- Adds a CHECK for every such column of a partition that has one value from one bound to the other, looked at every
-- quarter of an hour; how many. A column that has several, or that cannot be computed, is left alone. The partition is
-- new: nobody waits for the lock.
CREATE FUNCTION ebb.add_derived_checks(partition oid, column_name text, kind text, lower_bound timestamp, upper_bound timestamp) RETURNS int
LANGUAGE plpgsql SET search_path = pg_catalog SET TimeZone = 'UTC' AS $$
DECLARE
    one record;
    made int := 0;
    least_value text;
    only_one boolean;
BEGIN
    IF lower_bound IS NULL OR NOT isfinite(lower_bound) OR NOT isfinite(upper_bound) THEN
        RETURN 0;
    END IF;
    FOR one IN
        SELECT a.attname, format_type(a.atttypid, a.atttypmod) AS type, pg_get_expr(d.adbin, d.adrelid) AS expression,
               format_type(k.atttypid, k.atttypmod) AS key_type
        FROM pg_attribute a
        JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
        JOIN pg_attribute k ON k.attrelid = a.attrelid AND k.attname = column_name
        WHERE a.attrelid = partition AND a.attgenerated = 's' AND NOT a.attisdropped
          -- It depends on the partition column and on no other; where that is written down differs by version.
          AND ARRAY[k.attnum::int] = (
              SELECT array_agg(DISTINCT p.refobjsubid) FROM pg_depend p
              WHERE ((p.classid = 'pg_class'::regclass AND p.objid = partition AND p.objsubid = a.attnum)
                     OR (p.classid = 'pg_attrdef'::regclass AND p.objid = d.oid))
                AND p.refclassid = 'pg_class'::regclass AND p.refobjid = partition AND p.refobjsubid NOT IN (0, a.attnum))
    LOOP
        BEGIN
            EXECUTE format('SELECT min(v), count(DISTINCT v) = 1 AND count(v) = count(*) FROM (SELECT (%s)::text AS v FROM (
                                SELECT ebb.partition_literal(%L, m)::%s AS %I
                                FROM (SELECT generate_series($1, $2, interval ''15 minutes'') AS m UNION ALL SELECT $2) t) s) x',
                           one.expression, kind, one.key_type, column_name)
            INTO least_value, only_one USING lower_bound, upper_bound - interval '1 second';
            IF only_one THEN
                EXECUTE format('ALTER TABLE %s ADD CONSTRAINT %I CHECK (%I = %L::%s)', partition::regclass,
                    left('ebb_derived_' || one.attname, 60), one.attname, least_value, one.type);
                made := made + 1;
            END IF;
        EXCEPTION WHEN OTHERS THEN
            RAISE NOTICE 'no CHECK on % of %: %', quote_ident(one.attname), partition::regclass, SQLERRM;
        END;
    END LOOP;
    RETURN made;
END
$$;

-- As before, with the CHECKs above.
CREATE OR REPLACE FUNCTION ebb.add_partitions(parent oid, column_name text, by_period text, ahead int, unit text, zone text, at_most int)
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
        PERFORM ebb.add_derived_checks(
            ebb.create_partition(parent, new_name, ebb.partition_literal(kind, one.lower_bound), ebb.partition_literal(kind, one.upper_bound)),
            column_name, kind, one.lower_bound, one.upper_bound);
        made := made + 1;
    END LOOP;
    RETURN made;
END
$$;
