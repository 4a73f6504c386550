-- The tables with a trigger of any of these functions ($1 schema, $2 names): oid, schema, name. Read only.
SELECT DISTINCT c.oid::int8, n.nspname::text, c.relname::text
FROM pg_catalog.pg_proc p
JOIN pg_catalog.pg_namespace pn ON pn.oid = p.pronamespace
JOIN pg_catalog.pg_trigger t ON t.tgfoid = p.oid
JOIN pg_catalog.pg_class c ON c.oid = t.tgrelid
JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE pn.nspname = $1 AND p.proname = ANY ($2::text[])
ORDER BY 1
