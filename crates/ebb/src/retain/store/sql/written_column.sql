-- What may be written to a column ($2) of a table ($1): its type with its length, and whether it takes no null, or nothing at all because
-- the server writes it itself. Index: pg_attribute_relid_attnam_index; read only.
SELECT a.attname::text AS name, pg_catalog.format_type(a.atttypid, a.atttypmod) AS sql_type,
       a.attnotnull OR t.typnotnull AS wants_value, a.attgenerated <> '' OR a.attidentity = 'a' AS is_own
FROM pg_catalog.pg_attribute a JOIN pg_catalog.pg_type t ON t.oid = a.atttypid
WHERE a.attrelid = $1::int8::oid AND a.attname = $2 AND a.attnum > 0
