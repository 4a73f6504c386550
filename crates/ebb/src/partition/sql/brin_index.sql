-- Whether what has a name ($1 schema, $2 name) is a BRIN index of a table ($3) on a column ($4); no row when nothing has it.
-- Read only.
SELECT COALESCE(am.amname = 'brin' AND x.indrelid = $3::int8::oid AND x.indnatts = 1
           AND (SELECT a.attname FROM pg_catalog.pg_attribute a WHERE a.attrelid = x.indrelid AND a.attnum = x.indkey[0]) = $4, false)
FROM pg_catalog.pg_class c
JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
LEFT JOIN pg_catalog.pg_index x ON x.indexrelid = c.oid
LEFT JOIN pg_catalog.pg_am am ON am.oid = c.relam
WHERE n.nspname = $1 AND c.relname = $2
