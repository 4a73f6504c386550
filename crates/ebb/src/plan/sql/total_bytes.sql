-- What a leaf ($1) takes on disk with its indexes and long values. Read only.
SELECT pg_total_relation_size($1::int8::oid::regclass)
