-- The triggers that people made on a table ($1). Read only.
SELECT t.tgname::text AS name, pg_catalog.pg_get_triggerdef(t.oid) AS definition, t.tgenabled::text AS enabled,
       pg_catalog.obj_description(t.oid, 'pg_trigger') AS comment, t.tgtype & 1 = 1 AS is_row,
       t.tgtype & 7 = 7 AS is_before_insert, t.tgtype & 19 = 19 AS is_before_update, t.tgtype & 83 = 17 AS is_after_update, p.prosrc AS body, t.tgconstrrelid <> 0 AS is_between,
       l.lanname::text AS language,
       pg_catalog.format('%I.%I', n.nspname, c.relname) AS printed
FROM pg_catalog.pg_trigger t
JOIN pg_catalog.pg_class c ON c.oid = t.tgrelid
JOIN pg_catalog.pg_proc p ON p.oid = t.tgfoid
JOIN pg_catalog.pg_language l ON l.oid = p.prolang
JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE t.tgrelid = $1::int8::oid AND NOT t.tgisinternal
ORDER BY t.tgname
