-- The triggers that people made on a table ($1). Read only.
SELECT t.tgname::text AS name, pg_catalog.pg_get_triggerdef(t.oid) AS definition, t.tgenabled::text AS enabled,
       pg_catalog.obj_description(t.oid, 'pg_trigger') AS comment
FROM pg_catalog.pg_trigger t
WHERE t.tgrelid = $1::int8::oid AND NOT t.tgisinternal
ORDER BY t.tgname
