-- Whether an index ($1 schema, $2 name) is valid; no row when there is none. Read only.
SELECT x.indisvalid FROM pg_catalog.pg_index x JOIN pg_catalog.pg_class c ON c.oid = x.indexrelid
JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = $1 AND c.relname = $2
