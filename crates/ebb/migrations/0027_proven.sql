-- A CHECK on a derived column is a promise about rows that have not come yet: it is made only where the expression proves it.

-- As before, but only where every mention of the partition column is inside something that changes at whole quarters of an
-- hour (a year, a month, a day, an hour of it; date_trunc to one of those): then looking at every quarter of an hour has
-- looked at everything. Whatever else a column is made of may differ from one row to the next.
CREATE OR REPLACE FUNCTION ebb.add_derived_checks(partition oid, column_name text, kind text, lower_bound timestamp, upper_bound timestamp) RETURNS int
LANGUAGE plpgsql SET search_path = pg_catalog SET TimeZone = 'UTC' AS $$
DECLARE
    one record;
    made int := 0;
    least_value text;
    only_one boolean;
    field text := '(?:millennium|century|decade|year|isoyear|quarter|month|week|day|doy|dow|isodow|hour)';
    name text := regexp_replace(quote_ident(column_name), '([^[:alnum:]_])', '\\\1', 'g');
    moment text := format('(?:%1$s|\(%1$s AT TIME ZONE ''[^'']*''::text\))', name);
    steps text := format('EXTRACT\(%1$s FROM %2$s\)|date_part\(''%1$s''::text, %2$s\)|date_trunc\(''%1$s''::text, %2$s(?:, ''[^'']*''::text)?\)|\(%2$s\)::date', field, moment);
BEGIN
    IF kind NOT IN ('timestamptz', 'timestamp', 'date') OR lower_bound IS NULL OR NOT isfinite(lower_bound) OR NOT isfinite(upper_bound) THEN
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
        CONTINUE WHEN strpos(regexp_replace(one.expression, steps, '?', 'g'), quote_ident(column_name)) > 0;
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

-- A transaction that holds a lock others wait for says so, and then, now and again, whether it still may: how long is the
-- session's to say (ebb.max_lock, in milliseconds; without it as long as it takes). What it did so far is undone.
CREATE FUNCTION ebb.locked() RETURNS void
LANGUAGE sql SET search_path = pg_catalog AS $$
    SELECT set_config('ebb.locked_at', clock_timestamp()::text, true)
$$;

CREATE FUNCTION ebb.within_lock(what text) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog AS $$
DECLARE
    held interval := clock_timestamp() - current_setting('ebb.locked_at')::timestamptz;
    most interval := NULLIF(current_setting('ebb.max_lock', true), '')::int * interval '1 millisecond';
BEGIN
    IF held > most THEN
        RAISE EXCEPTION '% holds its lock for longer than % ms', what, current_setting('ebb.max_lock') USING ERRCODE = 'EB004';
    END IF;
END
$$;
