-- The indexes that a partition ($1) has for itself, as definitions. Read only.
SELECT pg_catalog.pg_get_indexdef(x.indexrelid) FROM pg_catalog.pg_index x
WHERE x.indrelid = $1::int8::oid AND x.indisvalid AND NOT EXISTS (SELECT FROM pg_catalog.pg_inherits i WHERE i.inhrelid = x.indexrelid)
  AND NOT EXISTS (SELECT FROM pg_catalog.pg_constraint con WHERE con.conindid = x.indexrelid AND con.conrelid = x.indrelid)
ORDER BY x.indexrelid
