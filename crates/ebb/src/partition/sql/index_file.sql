-- Where an index ($1 schema, $2 name) is, as the server calls its first file, and how large it is; no row when there is
-- none. Read only.
SELECT pg_catalog.pg_relation_filepath(c.oid) AS path, pg_catalog.pg_relation_size(c.oid) AS bytes,
       pg_catalog.pg_size_bytes(pg_catalog.current_setting('segment_size')) AS segment_bytes
FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = $1 AND c.relname = $2 AND pg_catalog.pg_relation_filepath(c.oid) IS NOT NULL
