-- The tables that deleting rows of $1 can reach through foreign keys, at any depth, each as its topmost partitioned
-- table. Expects pg_constraint (confrelid); read only.
WITH RECURSIVE links AS (
    SELECT COALESCE(pg_catalog.pg_partition_root(c.conrelid)::oid, c.conrelid) AS child,
           COALESCE(pg_catalog.pg_partition_root(c.confrelid)::oid, c.confrelid) AS parent
    FROM pg_catalog.pg_constraint c
    WHERE c.contype = 'f' AND c.conparentid = 0
), reached AS (
    SELECT seed::oid AS oid FROM unnest($1::int8[]) AS seed
    UNION
    SELECT links.child FROM links JOIN reached ON links.parent = reached.oid
), written AS (
    -- Functions that somebody wrote, with their text.
    SELECT p.oid, COALESCE(pg_catalog.pg_get_function_sqlbody(p.oid), p.prosrc) AS text,
           '\m' || regexp_replace(p.proname, '(\W)', '\\\1', 'g') || '"?\s*\(' AS call
    FROM pg_catalog.pg_proc p
    JOIN pg_catalog.pg_namespace n ON n.oid = p.pronamespace AND n.nspname NOT IN ('pg_catalog', 'information_schema', 'ebb')
    JOIN pg_catalog.pg_language l ON l.oid = p.prolang AND l.lanname IN ('plpgsql', 'sql')
), called AS (
    -- What a trigger on UPDATE runs, and what that calls by name.
    SELECT DISTINCT t.tgfoid AS trigger, t.tgfoid AS oid FROM pg_catalog.pg_trigger t
    JOIN reached ON t.tgrelid = reached.oid OR t.tgrelid IN (SELECT relid FROM pg_catalog.pg_partition_tree(reached.oid))
    WHERE NOT t.tgisinternal AND t.tgtype & 16 <> 0
    UNION
    SELECT called.trigger, other.oid
    FROM called JOIN written ON written.oid = called.oid
    JOIN written other ON other.oid <> called.oid AND written.text ~* other.call
), published AS MATERIALIZED (
    SELECT DISTINCT t.schemaname, t.tablename FROM pg_catalog.pg_publication_tables t
    JOIN pg_catalog.pg_publication p ON p.pubname = t.pubname AND (p.pubdelete OR p.pubupdate)
), destroys AS (
    SELECT called.trigger FROM called JOIN written ON written.oid = called.oid
    WHERE written.text ~* '\m(delete\s+from|truncate)\M'
)
SELECT c.oid::int8 AS oid, n.nspname AS schema, c.relname AS name,
       EXISTS (SELECT FROM pg_catalog.pg_inherits i WHERE i.inhparent = c.oid) AND c.relkind = 'r' AS inherited,
       ARRAY(SELECT a.attname::text FROM pg_catalog.pg_attribute a
             WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum) AS columns,
       ARRAY(SELECT pg_catalog.format_type(a.atttypid, a.atttypmod) FROM pg_catalog.pg_attribute a
             WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum) AS types,
       ARRAY(SELECT a.attnotnull FROM pg_catalog.pg_attribute a
             WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum) AS not_null,
       -- Generated, or in a CHECK that asks for nulls: most others are not false of them.
       ARRAY(SELECT a.attgenerated <> '' OR EXISTS (
                 SELECT FROM pg_catalog.pg_constraint k
                 WHERE k.conrelid = c.oid AND k.contype = 'c' AND a.attnum = ANY (k.conkey)
                   AND pg_catalog.pg_get_constraintdef(k.oid) ~* '\m(is|case|coalesce|nullif|num_nulls|num_nonnulls)\M')
             FROM pg_catalog.pg_attribute a
             WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum) AS wanted,
       -- The schema of the operators by which the default index over a column's type, or what it is a domain of, compares.
       ARRAY(SELECT CASE WHEN at.typnamespace = 'pg_catalog'::regnamespace THEN 'pg_catalog' ELSE COALESCE((
                 WITH RECURSIVE base AS (
                     SELECT at.oid, at.typtype, at.typbasetype
                     UNION ALL
                     SELECT t.oid, t.typtype, t.typbasetype FROM base JOIN pg_catalog.pg_type t ON t.oid = base.typbasetype
                     WHERE base.typtype = 'd'
                 )
                 SELECT n.nspname::text FROM base
                 JOIN pg_catalog.pg_opclass k ON k.opcintype = base.oid AND k.opcdefault
                 JOIN pg_catalog.pg_am m ON m.oid = k.opcmethod AND m.amname IN ('btree', 'hash')
                 JOIN pg_catalog.pg_amop e ON e.amopfamily = k.opcfamily AND e.amoplefttype = base.oid AND e.amoprighttype = base.oid
                     AND e.amopstrategy = CASE m.amname WHEN 'btree' THEN 3 ELSE 1 END
                 JOIN pg_catalog.pg_operator o ON o.oid = e.amopopr
                 JOIN pg_catalog.pg_namespace n ON n.oid = o.oprnamespace
                 ORDER BY m.amname LIMIT 1), 'pg_catalog') END
             FROM pg_catalog.pg_attribute a JOIN pg_catalog.pg_type at ON at.oid = a.atttypid
             WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum) AS operators,
       -- By which a column's texts are compared, where that is not the database's own, and whether it takes different ones for the same.
       ARRAY(SELECT CASE WHEN l.collname <> 'default' THEN format('%I.%I', ln.nspname, l.collname) END FROM pg_catalog.pg_attribute a
             LEFT JOIN pg_catalog.pg_collation l ON l.oid = a.attcollation LEFT JOIN pg_catalog.pg_namespace ln ON ln.oid = l.collnamespace
             WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum) AS collations,
       ARRAY(SELECT COALESCE(NOT l.collisdeterministic, false) FROM pg_catalog.pg_attribute a
             LEFT JOIN pg_catalog.pg_collation l ON l.oid = a.attcollation
             WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum) AS loose,
       -- Generated, or of a domain that does not allow null, or a CHECK says the same.
       ARRAY(SELECT a.attgenerated <> '' OR EXISTS (
                 SELECT FROM pg_catalog.pg_constraint k
                 WHERE k.conrelid = c.oid AND k.contype = 'c' AND k.conkey = ARRAY[a.attnum]
                   AND starts_with(pg_catalog.pg_get_constraintdef(k.oid), format('CHECK ((%I IS NOT NULL))', a.attname))) OR EXISTS (
                 WITH RECURSIVE base AS (
                     SELECT a.atttypid AS oid
                     UNION ALL
                     SELECT t.typbasetype FROM base JOIN pg_catalog.pg_type t ON t.oid = base.oid WHERE t.typtype = 'd'
                 )
                 SELECT FROM base JOIN pg_catalog.pg_type t ON t.oid = base.oid
                 WHERE t.typnotnull OR EXISTS (
                     SELECT FROM pg_catalog.pg_constraint k
                     WHERE k.contypid = t.oid AND starts_with(pg_catalog.pg_get_constraintdef(k.oid), 'CHECK ((VALUE IS NOT NULL))')))
             FROM pg_catalog.pg_attribute a
             WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum) AS fixed,
       -- How many foreign keys a column is part of, of the whole table or of some of its partitions.
       ARRAY(SELECT (SELECT count(DISTINCT (k.confrelid, ARRAY(
                         SELECT o.attname FROM pg_catalog.pg_attribute o WHERE o.attrelid = k.conrelid AND o.attnum = ANY (k.conkey) ORDER BY 1)))::int4
                     FROM pg_catalog.pg_constraint k
                     JOIN pg_catalog.pg_attribute own ON own.attrelid = k.conrelid AND own.attnum = ANY (k.conkey) AND own.attname = a.attname
                     WHERE k.contype = 'f' AND k.conparentid = 0
                       AND (k.conrelid = c.oid OR k.conrelid IN (SELECT relid FROM pg_catalog.pg_partition_tree(c.oid))))
             FROM pg_catalog.pg_attribute a
             WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum) AS in_keys,
       -- Triggers somebody wrote that fire when a row of the table or of a partition goes.
       ARRAY(SELECT DISTINCT t.tgname::text FROM pg_catalog.pg_trigger t
             WHERE NOT t.tgisinternal AND t.tgtype & 8 <> 0 AND t.tgenabled <> 'D'
               AND (t.tgrelid = c.oid OR t.tgrelid IN (SELECT relid FROM pg_catalog.pg_partition_tree(c.oid)))
             ORDER BY 1) AS delete_triggers,
       -- Leaves of which changes are published, and which say by nothing which row it is: none of theirs goes or changes.
       ARRAY(SELECT l.oid::int8 FROM pg_catalog.pg_class l
             WHERE (l.oid = c.oid OR l.oid IN (SELECT relid FROM pg_catalog.pg_partition_tree(c.oid))) AND l.relkind = 'r' AND l.relpersistence = 'p'
               AND (l.relreplident = 'n' OR l.relreplident = 'd'
                    AND NOT EXISTS (SELECT FROM pg_catalog.pg_index i WHERE i.indrelid = l.oid AND i.indisprimary AND i.indimmediate))
               AND EXISTS (SELECT FROM published
                           JOIN pg_catalog.pg_class pc ON pc.relname = published.tablename
                           JOIN pg_catalog.pg_namespace pn ON pn.oid = pc.relnamespace AND pn.nspname = published.schemaname
                           WHERE pc.oid = l.oid OR pc.oid IN (SELECT relid FROM pg_catalog.pg_partition_ancestors(l.oid)))
             ORDER BY 1) AS nameless,
       -- Rules that make something else of a deletion or a change.
       ARRAY(SELECT r.rulename::text FROM pg_catalog.pg_rewrite r
             WHERE r.ev_class = c.oid AND r.ev_type IN ('2', '4') AND r.ev_enabled <> 'D' ORDER BY 1) AS rules,
       -- A trigger on an update may keep a row as it is, or make it so again.
       EXISTS (SELECT FROM pg_catalog.pg_trigger t
               WHERE NOT t.tgisinternal AND t.tgtype & 16 <> 0 AND t.tgenabled <> 'D'
                 AND (t.tgrelid = c.oid OR t.tgrelid IN (SELECT relid FROM pg_catalog.pg_partition_tree(c.oid)))) AS updates_hindered,
       -- Triggers on UPDATE whose function deletes, or calls one that does: what a restore would need may be gone by then.
       ARRAY(SELECT DISTINCT t.tgname::text FROM pg_catalog.pg_trigger t
             WHERE NOT t.tgisinternal AND t.tgtype & 16 <> 0 AND t.tgenabled <> 'D' AND t.tgfoid IN (SELECT trigger FROM destroys)
               AND (t.tgrelid = c.oid OR t.tgrelid IN (SELECT relid FROM pg_catalog.pg_partition_tree(c.oid)))
             ORDER BY 1) AS update_triggers,
       -- Of the first table of $1 every trigger on UPDATE: how it was made, and the texts of all that it runs.
       COALESCE((SELECT jsonb_agg(jsonb_build_object('name', t.tgname, 'definition', pg_catalog.pg_get_triggerdef(t.oid),
                     'texts', ARRAY(SELECT written.text FROM called JOIN written ON written.oid = called.oid
                                    WHERE called.trigger = t.tgfoid ORDER BY written.oid)) ORDER BY t.tgname)
                 FROM pg_catalog.pg_trigger t
                 WHERE c.oid = ($1::int8[])[1]::oid AND NOT t.tgisinternal AND t.tgtype & 16 <> 0 AND t.tgenabled <> 'D' AND t.tgparentid = 0
                   AND (t.tgrelid = c.oid OR t.tgrelid IN (SELECT relid FROM pg_catalog.pg_partition_tree(c.oid)))), '[]') AS written_triggers
FROM (SELECT DISTINCT oid FROM reached) reached
JOIN pg_catalog.pg_class c ON c.oid = reached.oid
JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
ORDER BY n.nspname, c.relname
