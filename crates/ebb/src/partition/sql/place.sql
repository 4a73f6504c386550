-- Where a partition ($1) is at the moment: its name, its parent (null: none), whether its detach is pending. Read only.
SELECT n.nspname::text AS schema_name, c.relname::text AS table_name, i.inhparent::int8 AS parent,
       COALESCE(i.inhdetachpending, false) AS pending
FROM pg_catalog.pg_class c
JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
LEFT JOIN pg_catalog.pg_inherits i ON i.inhrelid = c.oid
WHERE c.oid = $1::int8::oid
