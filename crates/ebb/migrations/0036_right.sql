-- Times in records are read whatever they are, requests are about the soft delete of the row whatever clock wrote it, holds of a
-- partition's policy reach its rows by every name, guards keep every key, and what is copied or named is what the server accepts.

-- A moment as a record has it: also before our era and past 9999, which calendars print in ways of their own.
CREATE FUNCTION ebb.recorded_moment(written text) RETURNS timestamptz LANGUAGE sql STABLE
RETURN CASE WHEN written ~ '^-[0-9]{6}-' THEN (lpad((substr(written, 2, 6)::int + 1)::text, 4, '0') || substr(written, 8) || ' BC')::timestamptz
            WHEN written LIKE '0000-%' THEN ('0001' || substr(written, 5) || ' BC')::timestamptz
            WHEN written LIKE '% after 1970' THEN timestamptz 'epoch' + split_part(written, ' ', 1)::float8 / 1000000 * interval '1 second'
            ELSE written::timestamptz END;

-- As before; the soft delete that counts is the row's own, as for every other deletion. A clock of the application that is ahead
-- of the database's would otherwise leave a row that looks as if it had been deleted again.
CREATE OR REPLACE FUNCTION ebb.erase_subject(policy text, id text, by text DEFAULT current_user) RETURNS timestamptz
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET timezone = 'UTC' AS $$
#variable_conflict use_column
DECLARE
    root record;
    opened ebb.deletion;
    held timestamptz;
BEGIN
    PERFORM ebb.delete_subject(policy, id, by);
    root := ebb.touch_subject(policy, 'look', id, NULL, NULL);
    UPDATE ebb.deletion d
    SET expedited = true, not_before = NULL, next_try_at = NULL, attempts = 0,
        state = CASE WHEN d.state <> 'failed' THEN d.state
                     WHEN EXISTS (SELECT FROM ebb.warning w WHERE w.deletion = d.id AND w.step = 0) THEN 'warned'
                     ELSE 'pending' END,
        deleted_at = since.moment,
        due_at = ebb.retained_until(d.policy, d.tenant, since.moment, true)
    FROM (SELECT o.id, GREATEST(o.deleted_at, CASE WHEN isfinite(root.deleted_at) THEN root.deleted_at END)
          FROM ebb.deletion o WHERE o.policy = erase_subject.policy AND o.subject_id = root.id) AS since (id, moment)
    WHERE d.id = since.id AND d.policy = erase_subject.policy AND d.subject_id = root.id
      AND d.state IN ('pending', 'warned', 'failed')
    RETURNING d.* INTO opened;
    IF opened.id IS NULL THEN
        SELECT d.due_at INTO held FROM ebb.deletion d
        WHERE d.policy = erase_subject.policy AND d.subject_id = root.id AND d.state = 'erasing';
        RETURN held;
    END IF;
    PERFORM ebb.touch_subject(policy, 'due', root.id, NULL, opened.due_at);
    PERFORM ebb.note_subject('erase_requested', policy, opened.id, by, jsonb_build_object('due_at', opened.due_at));
    SELECT COALESCE(h.until, 'infinity') INTO held FROM ebb.hold h
    WHERE h.policy = erase_subject.policy AND h.subject_id = root.id AND h.lifted_at IS NULL
      AND (h.until IS NULL OR h.until > ebb.now());
    RETURN GREATEST(opened.due_at, held);
END
$$;

-- As before; the table is found by its name without a right on its schema.
CREATE OR REPLACE FUNCTION ebb.deleted_anew(policy text, in_row timestamptz, in_deletion timestamptz) RETURNS boolean
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT isfinite($2) AND $2 - CASE WHEN bool_and(COALESCE(NULLIF(t.typbasetype, 0), t.oid) <> 'date'::regtype)
                                      THEN interval '1 second' ELSE interval '25 hours' END >= $3
    FROM ebb.policy p
    JOIN ebb.retain r ON r.policy = p.name
    JOIN pg_namespace n ON n.nspname = (parse_ident(r.relation))[1]
    JOIN pg_class c ON c.relnamespace = n.oid AND c.relname = (parse_ident(r.relation))[2]
    JOIN pg_attribute a ON a.attrelid = c.oid AND a.attname = p.spec ->> 'deleted_at'
    JOIN pg_type t ON t.oid = a.atttypid
    WHERE p.kind = 'retain' AND p.name = $1
$$;

-- A table as people read it: quoted only where SQL would need it.
CREATE FUNCTION ebb.relation_label(relation oid) RETURNS text
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT string_agg(CASE WHEN x.name ~ '^[a-z_][a-z0-9_]*$' THEN x.name ELSE '"' || replace(x.name, '"', '""') || '"' END, '.' ORDER BY x.n)
    FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
    CROSS JOIN LATERAL unnest(ARRAY[n.nspname, c.relname]::text[]) WITH ORDINALITY x (name, n)
    WHERE c.oid = relation
$$;

-- Policies over the subjects of one partition are refused by now. Holds that they have reach the same rows through the table.
INSERT INTO ebb.reach (policy, relation, conditions, erased)
SELECT r.policy, ebb.relation_label(a.relid), r.conditions, r.erased
FROM ebb.reach r
JOIN pg_namespace n ON n.nspname = (parse_ident(r.relation))[1]
JOIN pg_class c ON c.relnamespace = n.oid AND c.relname = (parse_ident(r.relation))[2] AND c.relispartition
CROSS JOIN LATERAL pg_partition_ancestors(c.oid) a (relid)
WHERE a.relid <> c.oid
ON CONFLICT (policy, relation) DO NOTHING;
UPDATE ebb.gate g SET bound = true
WHERE NOT g.bound AND EXISTS (SELECT FROM ebb.reach r WHERE r.relation = ANY (g.relations));

-- Policies are copied as the server prints them. Where the columns of the two tables are not in the same places (one has lost some),
-- a policy that names its own table in a subquery does not fit as it is printed, and is written with the name of the other.
CREATE OR REPLACE FUNCTION ebb.copy_row_security(source oid, target oid) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    one record;
    same boolean;
    head text;
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
               pg_get_expr(p.polqual, CASE WHEN same THEN target ELSE source END) AS using_expr,
               pg_get_expr(p.polwithcheck, CASE WHEN same THEN target ELSE source END) AS check_expr,
               obj_description(p.oid, 'pg_policy') AS comment
        FROM pg_policy p WHERE p.polrelid = source ORDER BY p.polname
    LOOP
        head := format('CREATE POLICY %I ON %s AS %s FOR %s TO %s', one.polname, target::regclass,
            CASE WHEN one.polpermissive THEN 'PERMISSIVE' ELSE 'RESTRICTIVE' END,
            CASE one.polcmd WHEN 'r' THEN 'SELECT' WHEN 'a' THEN 'INSERT' WHEN 'w' THEN 'UPDATE' WHEN 'd' THEN 'DELETE' ELSE 'ALL' END, one.roles);
        BEGIN
            EXECUTE head || COALESCE(' USING (' || one.using_expr || ')', '') || COALESCE(' WITH CHECK (' || one.check_expr || ')', '');
        EXCEPTION WHEN undefined_table OR undefined_column THEN
            BEGIN
                EXECUTE head || COALESCE(' USING (' || ebb.with_table_name(one.using_expr, source_name, target_name) || ')', '')
                    || COALESCE(' WITH CHECK (' || ebb.with_table_name(one.check_expr, source_name, target_name) || ')', '');
            EXCEPTION WHEN undefined_table OR undefined_column OR invalid_schema_name OR undefined_function THEN
                RAISE EXCEPTION 'policy % of % cannot be copied to %: it names its table, whose columns are in other places (some were dropped)',
                    quote_ident(one.polname), source::regclass, target::regclass
                    USING HINT = 'write the policy so that it does not name its own table, for example with a function';
            END;
        END;
        IF one.comment IS NOT NULL THEN
            EXECUTE format('COMMENT ON POLICY %I ON %s IS %L', one.polname, target::regclass, one.comment);
        END IF;
    END LOOP;
    IF (SELECT relrowsecurity FROM pg_class WHERE pg_class.oid = source) THEN
        EXECUTE format('ALTER TABLE %s ENABLE ROW LEVEL SECURITY', target::regclass);
    END IF;
    IF (SELECT relforcerowsecurity FROM pg_class WHERE pg_class.oid = source) THEN
        EXECUTE format('ALTER TABLE %s FORCE ROW LEVEL SECURITY', target::regclass);
    END IF;
END
$$;

-- A portrait that was taken before it had lines about storage, sequences and views has those of today from now on: what is changed
-- after this is seen on the way back.
UPDATE ebb.adoption a
SET portrait = a.portrait || ARRAY(
    SELECT l FROM unnest(ebb.table_portrait(here.parent, here.column_name)) l
    WHERE split_part(l, ':', 1) IN ('storage', 'tablespace', 'column storage', 'identity', 'sequence', 'index use', 'view options'))
FROM (SELECT p.partrelid AS parent, ebb.relation_label(p.partrelid) AS label, k.attname::text AS column_name
      FROM pg_partitioned_table p
      JOIN pg_attribute k ON k.attrelid = p.partrelid AND k.attnum = p.partattrs[0]) here
WHERE here.label = a.relation AND a.state = 'adopted' AND a.portrait IS NOT NULL
  AND NOT EXISTS (SELECT FROM unnest(a.portrait) l WHERE l LIKE 'column storage: %');

-- The name of a table's partition, or one with digits of its own where that is too long or something has it: tables and types share names.
CREATE FUNCTION ebb.free_partition_name(relation oid, suffix text) RETURNS text
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT ebb.partition_name(relation, suffix, NOT EXISTS (
        SELECT FROM (SELECT c.relname, c.relnamespace FROM pg_class c UNION ALL SELECT t.typname, t.typnamespace FROM pg_type t) taken (name, namespace)
        JOIN pg_class t ON t.oid = relation AND t.relnamespace = taken.namespace
        WHERE taken.name = ebb.partition_name(relation, suffix)))
$$;

CREATE OR REPLACE FUNCTION ebb.add_partitions(parent oid, column_name text, by_period text, ahead int, unit text, zone text, at_most int)
RETURNS int LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET TimeZone = 'UTC' AS $$
DECLARE
    kind text := ebb.partition_kind(parent, column_name, unit);
    made int := 0;
    one record;
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
        PERFORM ebb.add_derived_checks(
            ebb.create_partition(parent, ebb.free_partition_name(parent, ebb.partition_suffix(by_period, one.start)),
                                 ebb.partition_literal(kind, one.lower_bound), ebb.partition_literal(kind, one.upper_bound)),
            column_name, kind, one.lower_bound, one.upper_bound);
        made := made + 1;
    END LOOP;
    RETURN made;
END
$$;

-- Until the keys that were claimed before last as long, too.
ALTER TABLE ebb.guard_term ADD COLUMN settled boolean NOT NULL DEFAULT false;

-- Keeps the keys of a table's guards for so long from now on, also those that are there; for when its rows are kept longer
-- than when it was adopted. In transactions of its own, 5,000 keys each: nobody waits for long. Whoever was at work when the term
-- changed may still claim by the old one, so everybody of that moment is waited for, and the keys are gone through once more.
DROP FUNCTION ebb.guard_for(regclass, interval);
CREATE PROCEDURE ebb.guard_for(relation regclass, term interval) LANGUAGE plpgsql AS $$
DECLARE
    path text := pg_catalog.current_setting('search_path');
    one record;
    changed_by xid8;
    last_key text;
    next_key text;
BEGIN
    -- A procedure that commits cannot have settings of its own.
    PERFORM pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', false);
    FOR one IN SELECT g.namespace FROM ebb.guards(relation) g LEFT JOIN ebb.guard_term t ON t.namespace = g.namespace
               WHERE g.term < guard_for.term OR NOT t.settled LOOP
        INSERT INTO ebb.guard_term AS g (namespace, term) VALUES (one.namespace, guard_for.term)
        ON CONFLICT (namespace) DO UPDATE SET term = greatest(g.term, EXCLUDED.term), settled = false;
        changed_by := pg_current_xact_id();
        COMMIT;
        WHILE pg_snapshot_xmin(pg_current_snapshot()) <= changed_by LOOP
            PERFORM pg_sleep(0.05);
            COMMIT;
        END LOOP;
        last_key := '';
        LOOP
            SELECT max(k.key) INTO next_key FROM (
                SELECT k.key FROM ebb.once_key k WHERE k.namespace = one.namespace AND k.key > last_key ORDER BY k.key LIMIT 5000) k;
            EXIT WHEN next_key IS NULL;
            UPDATE ebb.once_key k SET expires_at = ebb.guard_moment(k.result #>> '{}') + guard_for.term
            WHERE k.namespace = one.namespace AND k.key > last_key AND k.key <= next_key
              AND k.expires_at < ebb.guard_moment(k.result #>> '{}') + guard_for.term;
            last_key := next_key;
            COMMIT;
        END LOOP;
        UPDATE ebb.guard_term g SET settled = true WHERE g.namespace = one.namespace;
        COMMIT;
    END LOOP;
    PERFORM pg_catalog.set_config('search_path', path, false);
END
$$;
