-- The foreign keys of other tables that refer to a table ($1), and what carrying one more column would meet there. Read only.
SELECT con.conname::text AS name, n.nspname::text AS schema_name, c.relname::text AS table_name, c.oid = $1::int8::oid AS is_itself,
       c.relkind::text AS relkind, c.relispartition AS is_partition, pg_catalog.pg_get_userbyid(c.relowner)::text AS owner,
       pg_catalog.pg_has_role(c.relowner, 'USAGE') AS owned,
       EXISTS (SELECT FROM pg_catalog.pg_inherits i WHERE c.oid IN (i.inhparent, i.inhrelid)) AS inherits,
       pg_catalog.pg_get_constraintdef(con.oid) AS definition, con.convalidated AS is_valid, con.condeferrable AS is_deferrable,
       con.confmatchtype = 'f' AS is_full, con.confdeltype::text AS on_delete, con.confupdtype::text AS on_update,
       ARRAY(SELECT a.attname::text FROM unnest(con.conkey) WITH ORDINALITY k (attnum, n)
             JOIN pg_catalog.pg_attribute a ON a.attrelid = con.conrelid AND a.attnum = k.attnum ORDER BY k.n) AS columns,
       ARRAY(SELECT a.attname::text FROM unnest(con.confkey) WITH ORDINALITY k (attnum, n)
             JOIN pg_catalog.pg_attribute a ON a.attrelid = con.confrelid AND a.attnum = k.attnum ORDER BY k.n) AS referenced,
       ARRAY(SELECT a.attname::text FROM pg_catalog.pg_attribute a WHERE a.attrelid = con.conrelid AND a.attnum > 0 AND NOT a.attisdropped) AS all_columns,
       EXISTS (SELECT FROM pg_catalog.pg_trigger t WHERE t.tgrelid = con.conrelid AND NOT t.tgisinternal AND t.tgenabled = 'O' AND t.tgtype & 16 = 16) AS has_update_triggers,
       EXISTS (SELECT FROM pg_catalog.pg_publication_tables p WHERE p.schemaname = n.nspname AND p.tablename = c.relname) AS is_published,
       pg_catalog.obj_description(con.oid, 'pg_constraint') AS comment
FROM pg_catalog.pg_constraint con
JOIN pg_catalog.pg_class c ON c.oid = con.conrelid
JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE con.confrelid = $1::int8::oid AND con.contype = 'f' AND con.conparentid = 0
ORDER BY 2, 3, 1
