-- The size of a table ($1) without its indexes, for people. Read only.
SELECT pg_catalog.pg_size_pretty(pg_catalog.pg_table_size($1::text::regclass))
