-- Every relation with one of these names ($1). Expects pg_class_relname_nsp_index; takes no locks beyond reading.
SELECT c.oid::int8 AS oid, n.nspname::text AS schema, c.relname::text AS name, c.relkind::text AS kind,
       pg_catalog.pg_get_userbyid(c.relowner)::text AS owner, c.relpersistence::text AS persistence
FROM pg_catalog.pg_class c
JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind IN ('r', 'p', 'v', 'm', 'f', 'S')
  AND n.nspname NOT LIKE 'pg_temp%' AND n.nspname NOT LIKE 'pg_toast%'
  AND c.relname = ANY($1::text[])
