-- Every relation a person may have meant. Expects pg_class and pg_namespace; takes no locks beyond reading them.
SELECT c.oid::int8 AS oid, n.nspname AS schema, c.relname AS name, c.relkind::text AS kind,
       pg_catalog.pg_get_userbyid(c.relowner) AS owner, c.relpersistence::text AS persistence
FROM pg_catalog.pg_class c
JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind IN ('r', 'p', 'v', 'm', 'f', 'S')
  AND n.nspname NOT LIKE 'pg_temp%' AND n.nspname NOT LIKE 'pg_toast%'
  AND (pg_catalog.lower(c.relname) = ANY($1) OR c.relname = ANY($1))
