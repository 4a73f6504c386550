-- The columns of a table ($1), in order: name, whether it is generated. Read only.
SELECT a.attname::text AS name, a.attgenerated <> '' AS is_generated
FROM pg_catalog.pg_attribute a WHERE a.attrelid = $1::int8::oid AND a.attnum > 0 AND NOT a.attisdropped
ORDER BY a.attnum
