-- Pages in the main file of one leaf ($1), now. Read only.
SELECT pg_relation_size($1::int8::oid::regclass) / current_setting('block_size')::int8
