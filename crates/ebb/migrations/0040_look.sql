-- A look under a lock reads what it is about, and a split is stopped by what its parts would not have, by nothing else.

-- Everything about a table that somebody can change, a line each, without what an adoption puts there itself. It is asked for under
-- the lock of a swap: what depends on the table is found by indexes, however much else the database has. A foreign key into a
-- partitioned table has a row more for each partition there, and is one key all the same.
CREATE OR REPLACE FUNCTION ebb.table_portrait(relation oid, partition_column text) RETURNS text[]
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp SET TimeZone = 'UTC' AS $$
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
        FROM pg_trigger t WHERE t.tgrelid = relation AND NOT t.tgisinternal AND t.tgname !~ '^(!|a_|zz_)?ebb_'
        UNION ALL
        SELECT format('index: %s %s', pg_get_indexdef(x.indexrelid), obj_description(x.indexrelid, 'pg_class'))
        FROM pg_index x JOIN pg_class c ON c.oid = x.indexrelid WHERE x.indrelid = relation AND c.relname !~ '^ebb_'
        UNION ALL
        SELECT format('constraint: %I %s %s', k.conname, pg_get_constraintdef(k.oid), obj_description(k.oid, 'pg_constraint'))
        FROM pg_constraint k WHERE k.conrelid = relation AND k.contype IN ('c', 'f', 'x') AND k.conname !~ '^ebb_'
          AND NOT EXISTS (SELECT FROM pg_constraint p WHERE p.oid = k.conparentid AND p.conrelid = k.conrelid)
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
               OR d.refclassid = 'pg_type'::regclass AND d.refobjid = ANY (ARRAY(
                   SELECT c.reltype FROM pg_class c WHERE c.oid = relation
                   UNION SELECT t.typarray FROM pg_class c JOIN pg_type t ON t.oid = c.reltype WHERE c.oid = relation)))
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
        FROM pg_constraint k
        WHERE k.oid = ANY (ARRAY(SELECT d.objid FROM pg_depend d WHERE d.classid = 'pg_constraint'::regclass
                                 AND d.refclassid = 'pg_class'::regclass AND d.refobjid = relation))
          AND k.confrelid = relation AND k.contype = 'f' AND k.conparentid = 0 AND k.conrelid <> relation AND k.conname !~ '^ebb_'
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

-- Nothing may have changed since that the parts would not have, or would have although it was taken from the table. Views, functions,
-- comments and sequences are of the table, not of its parts.
CREATE OR REPLACE FUNCTION ebb.require_split_portrait(split text, relation oid, partition_column text) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    known text[] := (SELECT s.portrait FROM ebb.split s WHERE s.relation = split);
    here text[] := ebb.table_portrait(relation, partition_column);
    changes text := (SELECT string_agg(x.change || ' ' || left(x.line, 120), '; ' ORDER BY x.line) FROM (
        SELECT 'new', l FROM unnest(here) l WHERE l <> ALL (known)
        UNION ALL
        SELECT 'gone', l FROM unnest(known) l WHERE l <> ALL (here)) x (change, line)
        WHERE split_part(x.line, ':', 1) NOT IN ('comment', 'dependent', 'view options', 'sequence'));
BEGIN
    IF changes IS NOT NULL THEN
        RAISE EXCEPTION '% was changed since its split was planned: %', split, changes USING ERRCODE = 'EB002';
    END IF;
END
$$;
