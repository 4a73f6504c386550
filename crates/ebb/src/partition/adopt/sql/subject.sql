-- Everything about a table ($1) and its column ($2, counted in $3) that adopting it needs to know. Read only.
SELECT c.oid::int8 AS oid, pg_catalog.format('%I.%I', n.nspname, c.relname) AS printed, n.nspname::text AS schema_name, c.relname::text AS table_name, c.relkind::text AS relkind,
       c.relpersistence::text AS persistence, c.relispartition AS is_partition, c.reloftype <> 0 AS is_typed,
       pg_catalog.pg_get_userbyid(c.relowner)::text AS owner, pg_catalog.pg_has_role(c.relowner, 'USAGE') AS owned,
       -- Whoever is no superuser and gives a new table to its owner needs the right for both.
       ARRAY(SELECT r.rolname::text FROM pg_catalog.pg_roles r WHERE r.oid = ANY (ARRAY[c.relowner, current_user::regrole]::oid[])
             AND NOT pg_catalog.has_schema_privilege(r.oid, n.oid, 'CREATE')
             AND NOT (SELECT u.rolsuper FROM pg_catalog.pg_roles u WHERE u.rolname = current_user) ORDER BY 1) AS may_not_create,
       EXISTS (SELECT FROM pg_catalog.pg_inherits i WHERE i.inhparent = c.oid) AS has_children,
       EXISTS (SELECT FROM pg_catalog.pg_inherits i WHERE i.inhrelid = c.oid) AS is_child,
       EXISTS (SELECT FROM pg_catalog.pg_rewrite r WHERE r.ev_class = c.oid) AS has_rules,
       COALESCE(am.amname, 'heap')::text AS access_method, ts.spcname::text AS tablespace,
       c.relreplident::text AS replica_identity,
       c.relrowsecurity AND c.relforcerowsecurity AND (SELECT NOT r.rolsuper AND NOT r.rolbypassrls FROM pg_catalog.pg_roles r WHERE r.oid = c.relowner) AS is_forced,
       pg_catalog.obj_description(c.oid, 'pg_class') AS comment,
       (SELECT string_agg(o, ', ') FROM (
           SELECT pg_catalog.format('%I = %L', split_part(o, '=', 1), substr(o, strpos(o, '=') + 1)) AS o FROM unnest(c.reloptions) o
           UNION ALL
           SELECT pg_catalog.format('toast.%I = %L', split_part(o, '=', 1), substr(o, strpos(o, '=') + 1))
           FROM pg_catalog.pg_class t, unnest(t.reloptions) o WHERE t.oid = c.reltoastrelid) x) AS options,
       a.attname::text AS column_name, pg_catalog.format_type(a.atttypid, a.atttypmod) AS column_type,
       a.attnotnull AS not_null, a.attgenerated <> '' AS is_generated, ebb.partition_kind(c.oid, a.attname, $3) AS kind,
       to_char(ebb.partition_limit(c.oid, a.attname), 'YYYY-MM-DD') AS type_ends,
       pg_catalog.pg_relation_size(c.oid) AS bytes, GREATEST(c.reltuples, 0)::int8 AS rows,
       EXISTS (SELECT FROM pg_catalog.pg_trigger t WHERE t.tgrelid = c.oid AND NOT t.tgisinternal
               AND t.tgtype & 1 = 1 AND (t.tgoldtable IS NOT NULL OR t.tgnewtable IS NOT NULL)) AS row_transition_tables,
       ARRAY(SELECT pg_catalog.format('ALTER COLUMN %I SET STATISTICS %s', x.attname, x.attstattarget) FROM pg_catalog.pg_attribute x
             WHERE x.attrelid = c.oid AND x.attnum > 0 AND NOT x.attisdropped AND x.attstattarget >= 0
             UNION ALL
             SELECT pg_catalog.format('ALTER COLUMN %I SET (%s)', x.attname, array_to_string(x.attoptions, ', ')) FROM pg_catalog.pg_attribute x
             WHERE x.attrelid = c.oid AND x.attnum > 0 AND NOT x.attisdropped AND x.attoptions IS NOT NULL) AS column_statistics
FROM pg_catalog.pg_class c
JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
LEFT JOIN pg_catalog.pg_am am ON am.oid = c.relam
LEFT JOIN pg_catalog.pg_tablespace ts ON ts.oid = c.reltablespace
JOIN pg_catalog.pg_attribute a ON a.attrelid = c.oid AND a.attname = $2
WHERE c.oid = $1::int8::oid
