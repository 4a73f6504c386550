-- The type of a table's ($1) column ($2), as SQL writes it. Read only.
SELECT pg_catalog.format_type(a.atttypid, a.atttypmod), pg_catalog.pg_get_userbyid(c.relowner)::text
FROM pg_catalog.pg_attribute a JOIN pg_catalog.pg_class c ON c.oid = a.attrelid
WHERE a.attrelid = $1::int8::oid AND a.attname = $2
