-- The partitions of a table ($1) that may have rows: their files are not empty. Reads file sizes; read only.
SELECT i.inhrelid::int8 FROM pg_catalog.pg_inherits i WHERE i.inhparent = $1::int8::oid AND pg_catalog.pg_relation_size(i.inhrelid) > 0
