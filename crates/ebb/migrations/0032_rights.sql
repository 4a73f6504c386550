-- Rights, storage and identities are what they were, at every moment of an adoption and of its way back.

-- Gives a table the grants of another, and no others, also not of single columns or from a role that was granted them
-- itself; what its owner may not do, the owner of the copy may not either.
CREATE OR REPLACE FUNCTION ebb.copy_grants(source oid, target oid) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog AS $$
DECLARE
    one record;
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
        SELECT CASE acl.grantee WHEN 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(acl.grantee)) END AS who,
               acl.privilege_type, acl.is_grantable AND acl.grantee <> c.relowner AS is_grantable, NULL::text AS column_name
        FROM pg_class c, aclexplode(c.relacl) acl WHERE c.oid = source
        UNION ALL
        SELECT CASE acl.grantee WHEN 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(acl.grantee)) END,
               acl.privilege_type, acl.is_grantable, a.attname
        FROM pg_attribute a, aclexplode(a.attacl) acl WHERE a.attrelid = source AND NOT a.attisdropped
    LOOP
        EXECUTE format('GRANT %s%s ON %s TO %s%s', one.privilege_type, COALESCE(' (' || quote_ident(one.column_name) || ')', ''),
            target::regclass, one.who, CASE WHEN one.is_grantable THEN ' WITH GRANT OPTION' ELSE '' END);
    END LOOP;
END
$$;

-- An expression as the server prints it, with another name where it names its own table; what is in quotes stays.
CREATE FUNCTION ebb.with_table_name(expression text, old_name text, new_name text) RETURNS text
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog SET standard_conforming_strings = on AS $$
    SELECT string_agg(CASE WHEN x.part[1] ~ '^''' THEN x.part[1]
               ELSE regexp_replace(x.part[1], '(^|[^[:alnum:]_."])' || regexp_replace(old_name, '([^[:alnum:]_])', '\\\1', 'g') || '\.',
                                   '\1' || replace(new_name, '\', '\\') || '.', 'g') END, '' ORDER BY x.n)
    FROM regexp_matches(expression, '''(?:[^'']|'''')*''|[^'']+', 'g') WITH ORDINALITY x (part, n)
$$;

-- Where the columns of the two are not in the same places (one has lost some), a policy that names its own table in a
-- subquery is written anew with the name of the other, and looked at.
CREATE OR REPLACE FUNCTION ebb.copy_row_security(source oid, target oid) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog AS $$
DECLARE
    one record;
    same boolean;
    source_name text := (SELECT quote_ident(c.relname) FROM pg_class c WHERE c.oid = source);
    target_name text := (SELECT quote_ident(c.relname) FROM pg_class c WHERE c.oid = target);
BEGIN
    SELECT NOT EXISTS (
        SELECT FROM pg_attribute a FULL JOIN pg_attribute b ON b.attrelid = target AND b.attnum = a.attnum
        WHERE a.attrelid = source AND a.attnum > 0 AND NOT a.attisdropped AND a.attname IS DISTINCT FROM b.attname
    ) INTO same;
    FOR one IN
        SELECT p.polname, p.polpermissive, p.polcmd,
               (SELECT string_agg(CASE r WHEN 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(r)) END, ', ') FROM unnest(p.polroles) r) AS roles,
               CASE WHEN same THEN pg_get_expr(p.polqual, target)
                    ELSE ebb.with_table_name(pg_get_expr(p.polqual, source), source_name, target_name) END AS using_expr,
               CASE WHEN same THEN pg_get_expr(p.polwithcheck, target)
                    ELSE ebb.with_table_name(pg_get_expr(p.polwithcheck, source), source_name, target_name) END AS check_expr,
               obj_description(p.oid, 'pg_policy') AS comment
        FROM pg_policy p WHERE p.polrelid = source ORDER BY p.polname
    LOOP
        BEGIN
            EXECUTE format('CREATE POLICY %I ON %s AS %s FOR %s TO %s%s%s', one.polname, target::regclass,
                CASE WHEN one.polpermissive THEN 'PERMISSIVE' ELSE 'RESTRICTIVE' END,
                CASE one.polcmd WHEN 'r' THEN 'SELECT' WHEN 'a' THEN 'INSERT' WHEN 'w' THEN 'UPDATE' WHEN 'd' THEN 'DELETE' ELSE 'ALL' END,
                one.roles, COALESCE(' USING (' || one.using_expr || ')', ''), COALESCE(' WITH CHECK (' || one.check_expr || ')', ''));
            IF NOT same AND EXISTS (SELECT FROM pg_policy p WHERE p.polrelid = target AND p.polname = one.polname
                       AND (pg_get_expr(p.polqual, target) IS DISTINCT FROM one.using_expr OR pg_get_expr(p.polwithcheck, target) IS DISTINCT FROM one.check_expr)) THEN
                RAISE undefined_column;
            END IF;
            IF one.comment IS NOT NULL THEN
                EXECUTE format('COMMENT ON POLICY %I ON %s IS %L', one.polname, target::regclass, one.comment);
            END IF;
        EXCEPTION WHEN undefined_table OR undefined_column THEN
            RAISE EXCEPTION 'policy % of % cannot be copied to %: it names its table, whose columns are in other places (some were dropped)',
                quote_ident(one.polname), source::regclass, target::regclass
                USING HINT = 'write the policy so that it does not name its own table, for example with a function';
        END;
    END LOOP;
    IF (SELECT relrowsecurity FROM pg_class WHERE pg_class.oid = source) THEN
        EXECUTE format('ALTER TABLE %s ENABLE ROW LEVEL SECURITY', target::regclass);
    END IF;
    IF (SELECT relforcerowsecurity FROM pg_class WHERE pg_class.oid = source) THEN
        EXECUTE format('ALTER TABLE %s FORCE ROW LEVEL SECURITY', target::regclass);
    END IF;
END
$$;

-- When a row is from, as the text of its partition column tells it: a time, a uuid of version 7, or seconds or milliseconds
-- since 1970. The largest number that is taken for seconds is in the year 5138, the smallest for milliseconds in 1973.
CREATE FUNCTION ebb.guard_moment(at text) RETURNS timestamptz
LANGUAGE sql STABLE SET search_path = pg_catalog SET TimeZone = 'UTC' SET standard_conforming_strings = on AS $$
    SELECT CASE WHEN at ~ '^\d{4,}-\d\d-\d\d' THEN at::timestamptz
                WHEN at ~ '^[0-9a-f]{8}-[0-9a-f]{4}-' THEN to_timestamp(('x' || left(replace(at, '-', ''), 12))::bit(48)::int8 / 1000.0)
                WHEN at ~ '^\d{1,11}$' THEN to_timestamp(at::float8)
                WHEN at ~ '^\d{12,15}$' THEN to_timestamp(at::float8 / 1000) END
$$;

-- Guards whose keys are kept for longer than when their table was adopted.
CREATE TABLE ebb.guard_term (
    namespace       text        PRIMARY KEY,
    term            interval    NOT NULL
);

-- The guards of a table: where their keys are, and for how long after the row they stay.
CREATE FUNCTION ebb.guards(relation oid) RETURNS TABLE (namespace text, term interval)
LANGUAGE sql STABLE SET search_path = pg_catalog SET standard_conforming_strings = on AS $$
    SELECT x.a[1], greatest(x.a[2]::interval, g.term)
    FROM pg_trigger t
    CROSS JOIN LATERAL (SELECT string_to_array(encode(t.tgargs, 'escape'), '\000') AS a) x
    LEFT JOIN ebb.guard_term g ON g.namespace = x.a[1]
    WHERE t.tgrelid = relation AND t.tgname ~ '^a_ebb_guard(_\d+)?$'
$$;

-- Keeps the keys of a table's guards for so long from now on, also those that are there; for when its rows are kept longer
-- than when it was adopted. How many of those last longer now.
CREATE FUNCTION ebb.guard_for(relation regclass, term interval) RETURNS bigint
LANGUAGE plpgsql SET search_path = pg_catalog SET standard_conforming_strings = on AS $$
DECLARE
    one record;
    changed bigint;
    longer bigint := 0;
BEGIN
    FOR one IN SELECT g.namespace, g.term FROM ebb.guards(relation) g WHERE g.term < guard_for.term LOOP
        INSERT INTO ebb.guard_term AS g VALUES (one.namespace, guard_for.term) ON CONFLICT (namespace) DO UPDATE SET term = EXCLUDED.term;
        UPDATE ebb.once_key k SET expires_at = k.expires_at + (guard_for.term - one.term) WHERE k.namespace = one.namespace;
        GET DIAGNOSTICS changed = ROW_COUNT;
        longer := longer + changed;
    END LOOP;
    RETURN longer;
END
$$;

-- Keeps a key unique over a window where a partitioned table's own keys cannot, by trigger: after a row is in, as every
-- other trigger has left it, its key is claimed in ebb.once_key, in the same transaction. Of equal keys one stays; the
-- others wait for its end and get unique_violation (23505), as from an index. A row that goes gives its key back, if the
-- claim is its own. Arguments: namespace, term, the column that the table is partitioned by, then the key's columns. A key
-- with a NULL is not guarded, as an index would not. The text of a key must not depend on the session that wrote it. The
-- owner's rights: applications need none on Ebb's tables.
CREATE OR REPLACE FUNCTION ebb.guard() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog SET TimeZone = 'UTC' SET bytea_output = 'hex' AS $$
DECLARE
    columns text[] := TG_ARGV[3:];
    before_row jsonb := CASE WHEN TG_OP <> 'INSERT' THEN to_jsonb(OLD) END;
    after_row jsonb := CASE WHEN TG_OP <> 'DELETE' THEN to_jsonb(NEW) END;
    before_key text := CASE WHEN TG_OP <> 'INSERT' THEN ebb.guard_key(before_row, columns) END;
    after_key text := CASE WHEN TG_OP <> 'DELETE' THEN ebb.guard_key(after_row, columns) END;
    before_at text := before_row ->> TG_ARGV[2];
    after_at text := after_row ->> TG_ARGV[2];
    -- A row of the future stays that much longer.
    term interval := greatest(TG_ARGV[1]::interval, (SELECT g.term FROM ebb.guard_term g WHERE g.namespace = TG_ARGV[0])) + COALESCE(greatest(ebb.guard_moment(after_at) - ebb.clock(), interval '0'), interval '0');
BEGIN
    IF TG_OP = 'UPDATE' AND before_key IS NOT DISTINCT FROM after_key THEN
        IF before_at IS DISTINCT FROM after_at THEN
            UPDATE ebb.once_key k SET result = to_jsonb(after_at)
            WHERE k.namespace = TG_ARGV[0] AND k.key = after_key AND k.result #>> '{}' = before_at;
        END IF;
        -- A row that was there first and moves past the backfill.
        IF after_key IS NOT NULL THEN
            INSERT INTO ebb.once_key (namespace, key, expires_at, result)
            VALUES (TG_ARGV[0], after_key, ebb.clock() + term, to_jsonb(after_at)) ON CONFLICT DO NOTHING;
        END IF;
        RETURN NEW;
    END IF;
    IF before_key IS NOT NULL THEN
        DELETE FROM ebb.once_key k
        WHERE k.namespace = TG_ARGV[0] AND k.key = before_key AND COALESCE(k.result #>> '{}' = before_at, true);
    END IF;
    IF after_key IS NOT NULL THEN
        IF ebb.once(TG_ARGV[0], after_key, term) <> 'first' THEN
            RAISE unique_violation USING MESSAGE = format('duplicate key value violates guard %I of %I.%I', TG_NAME, TG_TABLE_SCHEMA, TG_TABLE_NAME),
                DETAIL = format('Key (%s)=(%s) already exists.', array_to_string(columns, ', '),
                    (SELECT string_agg(after_row ->> c, ', ' ORDER BY n) FROM unnest(columns) WITH ORDINALITY u (c, n)));
        END IF;
        -- When the row is from: whoever knows only the key can name its partition.
        UPDATE ebb.once_key k SET result = to_jsonb(after_at) WHERE k.namespace = TG_ARGV[0] AND k.key = after_key;
    END IF;
    RETURN CASE WHEN TG_OP = 'DELETE' THEN OLD ELSE NEW END;
END
$$;

-- Everything about a table that somebody can change, a line each, without what an adoption puts there itself.
CREATE OR REPLACE FUNCTION ebb.table_portrait(relation oid, partition_column text) RETURNS text[]
LANGUAGE sql STABLE SET search_path = pg_catalog SET TimeZone = 'UTC' AS $$
    SELECT array_agg(x.line ORDER BY x.line COLLATE "C") FROM (
        SELECT 'owner: ' || pg_get_userbyid(c.relowner) AS line FROM pg_class c WHERE c.oid = relation
        UNION ALL
        SELECT 'replica identity: ' || c.relreplident::text FROM pg_class c WHERE c.oid = relation
        UNION ALL
        SELECT 'grant: ' || acl::text FROM pg_class c, unnest(COALESCE(c.relacl, acldefault('r', c.relowner))) acl WHERE c.oid = relation
        UNION ALL
        SELECT format('grant: %I %s', a.attname, acl) FROM pg_attribute a, unnest(a.attacl) acl WHERE a.attrelid = relation AND NOT a.attisdropped
        UNION ALL
        SELECT format('row security: %s, forced: %s', c.relrowsecurity, c.relforcerowsecurity) FROM pg_class c WHERE c.oid = relation
        UNION ALL
        SELECT format('policy: %I %s %s %s USING (%s) WITH CHECK (%s) %s', p.polname, p.polcmd, p.polpermissive,
                      (SELECT string_agg(CASE r WHEN 0 THEN 'PUBLIC' ELSE pg_get_userbyid(r) END, ',' ORDER BY r) FROM unnest(p.polroles) r),
                      pg_get_expr(p.polqual, relation), pg_get_expr(p.polwithcheck, relation), obj_description(p.oid, 'pg_policy'))
        FROM pg_policy p WHERE p.polrelid = relation
        UNION ALL
        SELECT format('trigger: %s %s %s', pg_get_triggerdef(t.oid), t.tgenabled, obj_description(t.oid, 'pg_trigger'))
        FROM pg_trigger t WHERE t.tgrelid = relation AND NOT t.tgisinternal AND t.tgname !~ '^(a_|zz_)?ebb_'
        UNION ALL
        SELECT format('index: %s %s', pg_get_indexdef(x.indexrelid), obj_description(x.indexrelid, 'pg_class'))
        FROM pg_index x JOIN pg_class c ON c.oid = x.indexrelid WHERE x.indrelid = relation AND c.relname !~ '^ebb_'
        UNION ALL
        SELECT format('constraint: %I %s %s', k.conname, pg_get_constraintdef(k.oid), obj_description(k.oid, 'pg_constraint'))
        FROM pg_constraint k WHERE k.conrelid = relation AND k.contype IN ('c', 'f', 'x') AND k.conname !~ '^ebb_'
        UNION ALL
        SELECT format('column: %I %s %s%s %s', a.attname, format_type(a.atttypid, a.atttypmod), a.attidentity, a.attgenerated, pg_get_expr(d.adbin, d.adrelid))
        FROM pg_attribute a LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
        WHERE a.attrelid = relation AND a.attnum > 0 AND NOT a.attisdropped
        UNION ALL
        SELECT format('column: %I NOT NULL', a.attname)
        FROM pg_attribute a WHERE a.attrelid = relation AND a.attnum > 0 AND NOT a.attisdropped AND a.attnotnull AND a.attname <> partition_column
          AND NOT EXISTS (SELECT FROM pg_index x WHERE x.indrelid = relation AND x.indisprimary AND a.attnum = ANY (x.indkey))
        UNION ALL
        SELECT format('comment: %s%s', (SELECT quote_ident(a.attname) || ' ' FROM pg_attribute a WHERE a.attrelid = relation AND a.attnum = d.objsubid), d.description)
        FROM pg_description d WHERE d.classoid = 'pg_class'::regclass AND d.objoid = relation
        UNION ALL
        SELECT DISTINCT format('dependent: %s %s', pg_describe_object(d.classid, d.objid, 0),
                               CASE WHEN v.relkind IN ('v', 'm') AND r.rulename = '_RETURN' THEN pg_get_viewdef(v.oid) ELSE pg_get_ruledef(r.oid) END)
        FROM pg_depend d
        LEFT JOIN pg_rewrite r ON d.classid = 'pg_rewrite'::regclass AND r.oid = d.objid
        LEFT JOIN pg_class v ON v.oid = r.ev_class
        WHERE d.deptype = 'n' AND d.classid IN ('pg_rewrite'::regclass, 'pg_proc'::regclass, 'pg_class'::regclass, 'pg_policy'::regclass)
          AND (d.refclassid = 'pg_class'::regclass AND d.refobjid = relation
               OR d.refclassid = 'pg_type'::regclass AND d.refobjid IN (
                   SELECT c.reltype FROM pg_class c WHERE c.oid = relation
                   UNION SELECT t.typarray FROM pg_class c JOIN pg_type t ON t.oid = c.reltype WHERE c.oid = relation))
          AND NOT (d.classid = 'pg_class'::regclass AND (d.objid = relation OR EXISTS (
                   SELECT FROM pg_class s WHERE s.oid = d.objid AND s.relkind IN ('S', 'i', 'I'))))
          AND NOT (d.classid = 'pg_policy'::regclass AND EXISTS (SELECT FROM pg_policy p WHERE p.oid = d.objid AND p.polrelid = relation))
        UNION ALL
        SELECT format('publication: %I %s %s', p.pubname, to_jsonb(r) ->> 'prattrs', to_jsonb(r) ->> 'prqual')
        FROM pg_publication_rel r JOIN pg_publication p ON p.oid = r.prpubid WHERE r.prrelid = relation
        UNION ALL
        SELECT format('statistics: %s %s', pg_get_statisticsobjdef(s.oid), obj_description(s.oid, 'pg_statistic_ext'))
        FROM pg_statistic_ext s WHERE s.stxrelid = relation
        UNION ALL
        SELECT format('foreign key of %s: %I %s', k.conrelid::regclass, k.conname, regexp_replace(pg_get_constraintdef(k.oid), ' NOT VALID$', ''))
        FROM pg_constraint k WHERE k.confrelid = relation AND k.contype = 'f' AND k.conparentid = 0 AND k.conrelid <> relation AND k.conname !~ '^ebb_'
        UNION ALL
        SELECT 'storage: ' || o FROM pg_class c LEFT JOIN pg_class t ON t.oid = c.reltoastrelid,
            LATERAL (SELECT unnest(c.reloptions) UNION ALL SELECT 'toast.' || unnest(t.reloptions)) x (o) WHERE c.oid = relation
        UNION ALL
        SELECT 'tablespace: ' || s.spcname FROM pg_class c JOIN pg_tablespace s ON s.oid = c.reltablespace WHERE c.oid = relation
        UNION ALL
        SELECT format('column storage: %I %s %s %s %s', a.attname, a.attstorage, a.attcompression, COALESCE(a.attstattarget, -1), a.attoptions)
        FROM pg_attribute a WHERE a.attrelid = relation AND a.attnum > 0 AND NOT a.attisdropped
        UNION ALL
        SELECT format('identity: %I %s', a.attname, a.attidentity)
        FROM pg_attribute a WHERE a.attrelid = relation AND a.attnum > 0 AND NOT a.attisdropped AND a.attidentity <> ''
        UNION ALL
        SELECT format('sequence: %s from %s by %s, %s to %s, cache %s, cycle %s, %s, %s', s.oid::regclass, q.seqstart, q.seqincrement, q.seqmin, q.seqmax, q.seqcache,
                      q.seqcycle, COALESCE(s.relacl, acldefault('s', s.relowner)), obj_description(s.oid, 'pg_class'))
        FROM pg_depend d JOIN pg_class s ON s.oid = d.objid AND s.relkind = 'S' JOIN pg_sequence q ON q.seqrelid = s.oid
        WHERE d.refclassid = 'pg_class'::regclass AND d.refobjid = relation AND d.classid = 'pg_class'::regclass AND d.deptype IN ('a', 'i')
        UNION ALL
        SELECT format('index use: %I replica identity %s, clustered %s, tablespace %s', c.relname, x.indisreplident, x.indisclustered, s.spcname)
        FROM pg_index x JOIN pg_class c ON c.oid = x.indexrelid LEFT JOIN pg_tablespace s ON s.oid = c.reltablespace
        WHERE x.indrelid = relation AND c.relname !~ '^ebb_'
        UNION ALL
        SELECT DISTINCT format('view options: %s %s', v.oid::regclass, v.reloptions)
        FROM pg_depend d JOIN pg_rewrite r ON r.oid = d.objid JOIN pg_class v ON v.oid = r.ev_class AND v.relkind = 'v' AND v.reloptions IS NOT NULL
        WHERE d.refclassid = 'pg_class'::regclass AND d.refobjid = relation AND d.classid = 'pg_rewrite'::regclass
    ) x
$$;

-- What is different about a table from the portrait of its adoption: `new …` and `gone …`. A portrait that was taken before
-- it had such lines says nothing about them.
CREATE OR REPLACE FUNCTION ebb.portrait_changes(adopted text, relation oid, partition_column text) RETURNS TABLE (change text, line text)
LANGUAGE sql STABLE SET search_path = pg_catalog AS $$
    WITH known AS MATERIALIZED (
        SELECT a.portrait AS lines, ebb.table_portrait(portrait_changes.relation, partition_column) AS here,
               EXISTS (SELECT FROM unnest(a.portrait) l WHERE l LIKE 'column storage: %') AS complete
        FROM ebb.adoption a WHERE a.relation = adopted AND a.portrait IS NOT NULL
    )
    SELECT x.change, x.line FROM (
        SELECT 'new', x.line FROM (SELECT unnest(known.here) FROM known EXCEPT SELECT unnest(known.lines) FROM known) x (line)
        UNION ALL
        SELECT 'gone', x.line FROM (SELECT unnest(known.lines) FROM known EXCEPT SELECT unnest(known.here) FROM known) x (line)
    ) x (change, line), known
    WHERE known.complete OR split_part(x.line, ':', 1) NOT IN ('storage', 'tablespace', 'column storage', 'identity', 'sequence', 'index use', 'view options')
$$;

-- On the way back the old table gets what it had. Columns, checks, foreign keys and further indexes are on it already,
-- which is looked at; grants, row-level security and comments are carried to it as they are now; anything else would be
-- lost, or come back, and is refused.
-- Dry: refuses, and changes nothing.
CREATE OR REPLACE FUNCTION ebb.carry_changes(adopted text, source oid, target oid, partition_column text, dry boolean) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog AS $$
DECLARE
    kinds text[];
    lost text;
    one record;
BEGIN
    SELECT array_agg(split_part(c.line, ':', 1)),
           string_agg(c.change || ' ' || left(c.line, 120), '; ' ORDER BY c.line) FILTER (
               WHERE split_part(c.line, ':', 1) NOT IN ('grant', 'policy', 'row security', 'comment')
                 AND NOT (c.change = 'new' AND split_part(c.line, ':', 1) IN ('index', 'index use'))
                 AND NOT (split_part(c.line, ':', 1) IN ('column', 'column storage', 'constraint')
                          AND (c.change = 'new') = (c.line = ANY (ebb.table_portrait(target, partition_column)))))
    INTO kinds, lost FROM ebb.portrait_changes(adopted, source, partition_column) c;
    IF lost IS NOT NULL THEN
        RAISE EXCEPTION '% was changed since it was adopted, and the way back would lose it: %', adopted, lost USING ERRCODE = 'EB002';
    END IF;
    IF dry THEN
        RETURN;
    END IF;
    IF 'grant' = ANY (kinds) THEN
        PERFORM ebb.copy_grants(source, target);
    END IF;
    IF kinds && ARRAY['policy', 'row security'] THEN
        FOR one IN SELECT p.polname FROM pg_policy p WHERE p.polrelid = target LOOP
            EXECUTE format('DROP POLICY %I ON %s', one.polname, target::regclass);
        END LOOP;
        EXECUTE format('ALTER TABLE %s DISABLE ROW LEVEL SECURITY, NO FORCE ROW LEVEL SECURITY', target::regclass);
        PERFORM ebb.copy_row_security(source, target);
    END IF;
    IF 'comment' = ANY (kinds) THEN
        EXECUTE format('COMMENT ON TABLE %s IS %L', target::regclass, obj_description(source, 'pg_class'));
        FOR one IN
            SELECT a.attname, col_description(source, s.attnum) AS text
            FROM pg_attribute a JOIN pg_attribute s ON s.attrelid = source AND s.attname = a.attname
            WHERE a.attrelid = target AND a.attnum > 0 AND NOT a.attisdropped
              AND col_description(source, s.attnum) IS DISTINCT FROM col_description(target, a.attnum)
        LOOP
            EXECUTE format('COMMENT ON COLUMN %s.%I IS %L', target::regclass, one.attname, one.text);
        END LOOP;
    END IF;
END
$$;

-- As before, also for columns that are computed when they are read, which 18 makes unless told otherwise.
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
        WHERE a.attrelid = partition AND a.attgenerated <> '' AND NOT a.attisdropped
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

-- What the table looked like when its split was planned: the parts are made like that.
ALTER TABLE ebb.split ADD COLUMN portrait text[];

-- Nothing may have changed since: the parts would not have it, or have what was taken from the table.
CREATE FUNCTION ebb.require_split_portrait(split text, relation oid, partition_column text) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog AS $$
DECLARE
    known text[] := (SELECT s.portrait FROM ebb.split s WHERE s.relation = split);
    here text[] := ebb.table_portrait(relation, partition_column);
    changes text := (SELECT string_agg(x.change || ' ' || left(x.line, 120), '; ' ORDER BY x.line) FROM (
        SELECT 'new', l FROM unnest(here) l WHERE l <> ALL (known)
        UNION ALL
        SELECT 'gone', l FROM unnest(known) l WHERE l <> ALL (here)) x (change, line));
BEGIN
    IF changes IS NOT NULL THEN
        RAISE EXCEPTION '% was changed since its split was planned: %', split, changes USING ERRCODE = 'EB002';
    END IF;
END
$$;

-- A former partition takes rows of every time: what follows from its period does not hold any more.
CREATE FUNCTION ebb.drop_derived_checks(partition oid) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog AS $$
DECLARE
    name name;
BEGIN
    FOR name IN SELECT k.conname FROM pg_constraint k WHERE k.conrelid = partition AND k.contype = 'c' AND k.conname ~ '^ebb_derived_' LOOP
        EXECUTE format('ALTER TABLE %s DROP CONSTRAINT %I', partition::regclass, name);
    END LOOP;
END
$$;
