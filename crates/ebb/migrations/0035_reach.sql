-- How far things reach: an integer column until 2038, a right from whoever gave it, a CHECK no further than its proof.

-- Where the type of a column ends, for one that counts seconds in an integer; null where that is no matter.
CREATE FUNCTION ebb.partition_limit(relation oid, column_name text) RETURNS timestamp
LANGUAGE sql STABLE SET search_path = pg_catalog AS $$
    WITH RECURSIVE base AS (
        SELECT t.oid, t.typtype, t.typbasetype
        FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid
        WHERE a.attrelid = relation AND a.attname = column_name AND a.attnum > 0 AND NOT a.attisdropped
        UNION ALL
        SELECT t.oid, t.typtype, t.typbasetype FROM base JOIN pg_type t ON t.oid = base.typbasetype WHERE base.typtype = 'd'
    )
    SELECT timestamp '2038-01-19 03:14:07' FROM base WHERE base.oid = 'int4'::regtype
$$;

-- As before, but no further than the column's type: the last period ends with it.
CREATE OR REPLACE FUNCTION ebb.missing_partitions(parent oid, kind text, by_period text, ahead int, zone text)
RETURNS TABLE (start timestamp, lower_bound timestamp, upper_bound timestamp)
LANGUAGE sql STABLE SET search_path = pg_catalog SET TimeZone = 'UTC' AS $$
    WITH here AS MATERIALIZED (
        SELECT date_trunc(by_period, ebb.now() AT TIME ZONE ebb.partition_zone(kind, zone)) AS this, ('1 ' || by_period)::interval AS step,
               COALESCE((SELECT ebb.partition_limit(parent, a.attname) FROM pg_partitioned_table p
                         JOIN pg_attribute a ON a.attrelid = p.partrelid AND a.attnum = p.partattrs[0] WHERE p.partrelid = parent), 'infinity') AS ends
    ), covered AS MATERIALIZED (
        SELECT COALESCE(range_agg(tsrange(b.lower_bound, b.upper_bound)), '{}') AS all_of_it
        FROM ebb.partition_bounds(parent, kind) b WHERE b.lower_bound IS NOT NULL
    ), periods AS MATERIALIZED (
        SELECT here.this + n * here.step AS start, least(here.this + (n + 1) * here.step, here.ends) AS upper_bound
        FROM here, generate_series(0, ahead) n
        WHERE here.this + n * here.step < here.ends
    ), uncovered AS MATERIALIZED (
        SELECT p.start, p.upper_bound, covered.all_of_it
        FROM periods p, covered
        WHERE NOT tsrange(p.start, p.upper_bound) <@ covered.all_of_it
    )
    -- What is free of a period begins after the last partition that reaches into it.
    SELECT u.start, greatest(u.start, upper(u.all_of_it * tsmultirange(tsrange(u.start, u.upper_bound)))), u.upper_bound
    FROM uncovered u
    WHERE greatest(u.start, upper(u.all_of_it * tsmultirange(tsrange(u.start, u.upper_bound)))) < u.upper_bound
    ORDER BY u.start
$$;

-- The columns of a partition that are generated from its partition column and, by their expression, change at whole quarters
-- of an hour alone: every mention of it is inside a year, a month, a day, an hour of it, or date_trunc to one of those.
CREATE FUNCTION ebb.derived_columns(partition oid, column_name text, kind text)
RETURNS TABLE (number int2, name text, type text, expression text, key_type text)
LANGUAGE plpgsql STABLE SET search_path = pg_catalog SET TimeZone = 'UTC' AS $$
#variable_conflict use_column
DECLARE
    field text := '(?:millennium|century|decade|year|isoyear|quarter|month|week|day|doy|dow|isodow|hour)';
    own text := regexp_replace(quote_ident(column_name), '([^[:alnum:]_])', '\\\1', 'g');
    moment text := format('(?:%1$s|\(%1$s AT TIME ZONE ''[^'']*''::text\))', own);
    steps text := format('EXTRACT\(%1$s FROM %2$s\)|date_part\(''%1$s''::text, %2$s\)|date_trunc\(''%1$s''::text, %2$s(?:, ''[^'']*''::text)?\)|\(%2$s\)::date', field, moment);
BEGIN
    IF kind NOT IN ('timestamptz', 'timestamp', 'date') THEN
        RETURN;
    END IF;
    RETURN QUERY
    SELECT a.attnum, a.attname::text, format_type(a.atttypid, a.atttypmod), pg_get_expr(d.adbin, d.adrelid),
           format_type(k.atttypid, k.atttypmod)
    FROM pg_attribute a
    JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
    JOIN pg_attribute k ON k.attrelid = a.attrelid AND k.attname = column_name
    WHERE a.attrelid = partition AND a.attgenerated <> '' AND NOT a.attisdropped
      -- It depends on the partition column and on no other; where that is written down differs by version.
      AND ARRAY[k.attnum::int] = (
          SELECT array_agg(DISTINCT p.refobjsubid) FROM pg_depend p
          WHERE ((p.classid = 'pg_class'::regclass AND p.objid = partition AND p.objsubid = a.attnum)
                 OR (p.classid = 'pg_attrdef'::regclass AND p.objid = d.oid))
            AND p.refclassid = 'pg_class'::regclass AND p.refobjid = partition AND p.refobjsubid NOT IN (0, a.attnum))
      AND strpos(regexp_replace(pg_get_expr(d.adbin, d.adrelid), steps, '?', 'g'), quote_ident(column_name)) = 0;
END
$$;

-- As before.
CREATE OR REPLACE FUNCTION ebb.add_derived_checks(partition oid, column_name text, kind text, lower_bound timestamp, upper_bound timestamp) RETURNS int
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
    FOR one IN SELECT * FROM ebb.derived_columns(partition, column_name, kind) LOOP
        BEGIN
            EXECUTE format('SELECT min(v), count(DISTINCT v) = 1 AND count(v) = count(*) FROM (SELECT (%s)::text AS v FROM (
                                SELECT ebb.partition_literal(%L, m)::%s AS %I
                                FROM (SELECT generate_series($1, $2, interval ''15 minutes'') AS m UNION ALL SELECT $2) t) s) x',
                           one.expression, kind, one.key_type, column_name)
            INTO least_value, only_one USING lower_bound, upper_bound - interval '1 second';
            IF only_one THEN
                EXECUTE format('ALTER TABLE %s ADD CONSTRAINT %I CHECK (%I = %L::%s)', partition::regclass,
                    left('ebb_derived_' || one.name, 60), one.name, least_value, one.type);
                made := made + 1;
            END IF;
        EXCEPTION WHEN OTHERS THEN
            RAISE NOTICE 'no CHECK on % of %: %', quote_ident(one.name), partition::regclass, SQLERRM;
        END;
    END LOOP;
    RETURN made;
END
$$;

-- As before; a right that somebody was given by one who may give it on is given by that one again, where whoever runs this
-- may act for them, and by the owner where not.
CREATE OR REPLACE FUNCTION ebb.copy_grants(source oid, target oid) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog AS $$
DECLARE
    one record;
    given text;
    here text := current_setting('role');
BEGIN
    FOR one IN
        SELECT DISTINCT CASE acl.grantee WHEN 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(acl.grantee)) END AS who
        FROM (SELECT c.relowner, c.relacl FROM pg_class c WHERE c.oid = target
              UNION ALL
              SELECT c.relowner, a.attacl FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND NOT a.attisdropped WHERE c.oid = target) c,
             aclexplode(c.relacl) acl
        WHERE acl.grantee <> c.relowner
        UNION ALL
        SELECT quote_ident(pg_get_userbyid(t.relowner)) FROM pg_class t, pg_class s
        WHERE t.oid = target AND s.oid = source AND s.relacl IS NOT NULL
    LOOP
        EXECUTE format('REVOKE ALL ON %s FROM %s CASCADE', target::regclass, one.who);
    END LOOP;
    FOR one IN
        WITH RECURSIVE rights AS (
            SELECT acl.grantor, acl.grantee, acl.privilege_type, acl.is_grantable AND acl.grantee <> c.relowner AS is_grantable,
                   NULL::text AS column_name, c.relowner
            FROM pg_class c, aclexplode(c.relacl) acl WHERE c.oid = source
            UNION ALL
            SELECT acl.grantor, acl.grantee, acl.privilege_type, acl.is_grantable, a.attname::text, c.relowner
            FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid, aclexplode(a.attacl) acl WHERE c.oid = source AND NOT a.attisdropped
        ), chain AS (
            SELECT r.*, 0 AS far FROM rights r WHERE r.grantor = r.relowner
            UNION
            SELECT r.*, c.far + 1 FROM chain c JOIN rights r ON r.grantor = c.grantee AND r.grantor <> r.relowner
                AND r.privilege_type = c.privilege_type AND c.is_grantable AND (c.column_name IS NULL OR c.column_name = r.column_name)
            WHERE c.far < 20
        )
        SELECT CASE r.grantee WHEN 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(r.grantee)) END AS who,
               r.privilege_type, r.is_grantable, r.column_name, r.grantor <> r.relowner AS is_given_on, pg_get_userbyid(r.grantor) AS giver
        FROM rights r
        -- Nobody gives on what they have not been given yet.
        ORDER BY (SELECT min(c.far) FROM chain c WHERE (c.grantor, c.grantee, c.privilege_type) = (r.grantor, r.grantee, r.privilege_type)
                  AND c.column_name IS NOT DISTINCT FROM r.column_name) NULLS LAST
    LOOP
        given := format('GRANT %s%s ON %s TO %s%s', one.privilege_type, COALESCE(' (' || quote_ident(one.column_name) || ')', ''),
            target::regclass, one.who, CASE WHEN one.is_grantable THEN ' WITH GRANT OPTION' ELSE '' END);
        IF one.is_given_on THEN
            BEGIN
                EXECUTE format('SET LOCAL ROLE %I', one.giver);
                EXECUTE given;
                EXECUTE format('SET LOCAL ROLE %I', here);
                CONTINUE;
            EXCEPTION WHEN insufficient_privilege THEN
                NULL; -- and the role is what it was
            END;
        END IF;
        EXECUTE given;
    END LOOP;
END
$$;
