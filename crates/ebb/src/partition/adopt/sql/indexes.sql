-- The indexes of a table ($1), with the constraint each belongs to, and whether they have its column ($2) as a key.
SELECT ic.relname::text AS name, pg_catalog.pg_get_indexdef(x.indexrelid) AS definition, x.indisunique AS is_unique,
       x.indisprimary AS is_primary, x.indisexclusion AS is_exclusion, x.indisvalid AS is_valid, x.indisreplident AS is_replica_identity,
       x.indisclustered AS is_clustered,
       EXISTS (SELECT FROM generate_series(0, x.indnkeyatts - 1) k JOIN pg_catalog.pg_attribute a ON a.attrelid = x.indrelid AND a.attnum = x.indkey[k]
               WHERE a.attname = $2) AS has_column,
       ARRAY(SELECT a.attname::text FROM generate_series(0, x.indnkeyatts - 1) k JOIN pg_catalog.pg_attribute a ON a.attrelid = x.indrelid AND a.attnum = x.indkey[k]
             ORDER BY k) AS key_columns,
       con.conname::text AS constraint_name, pg_catalog.pg_get_constraintdef(con.oid) AS constraint_definition,
       pg_catalog.obj_description(x.indexrelid, 'pg_class') AS comment,
       pg_catalog.obj_description(con.oid, 'pg_constraint') AS constraint_comment
FROM pg_catalog.pg_index x
JOIN pg_catalog.pg_class ic ON ic.oid = x.indexrelid
LEFT JOIN pg_catalog.pg_constraint con ON con.conindid = x.indexrelid AND con.conrelid = x.indrelid AND con.contype IN ('p', 'u', 'x')
WHERE x.indrelid = $1::int8::oid
ORDER BY ic.relname
