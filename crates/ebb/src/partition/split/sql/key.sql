-- The key by which rows of a table ($1) are told apart: its primary key, or a unique one that is not deferred, has no
-- condition, expression or NULLs; with the operator of each column that the index itself compares by. Read only.
SELECT ARRAY(SELECT a.attname::text FROM generate_series(0, x.indnkeyatts - 1) k JOIN pg_catalog.pg_attribute a ON a.attrelid = x.indrelid AND a.attnum = x.indkey[k]
             ORDER BY k) AS columns,
       ARRAY(SELECT pg_catalog.format('OPERATOR(%I.%s)', n.nspname, o.oprname)
             FROM generate_series(0, x.indnkeyatts - 1) k
             JOIN pg_catalog.pg_opclass c ON c.oid = x.indclass[k]
             JOIN pg_catalog.pg_amop m ON m.amopfamily = c.opcfamily AND m.amopstrategy = 3 AND m.amoplefttype = c.opcintype AND m.amoprighttype = c.opcintype
             JOIN pg_catalog.pg_operator o ON o.oid = m.amopopr
             JOIN pg_catalog.pg_namespace n ON n.oid = o.oprnamespace
             ORDER BY k) AS operators
FROM pg_catalog.pg_index x
JOIN pg_catalog.pg_class ic ON ic.oid = x.indexrelid
JOIN pg_catalog.pg_am am ON am.oid = ic.relam AND am.amname = 'btree'
WHERE x.indrelid = $1::int8::oid AND x.indisunique AND x.indisvalid AND x.indimmediate AND x.indpred IS NULL AND x.indexprs IS NULL
  AND NOT EXISTS (SELECT FROM generate_series(0, x.indnkeyatts - 1) k JOIN pg_catalog.pg_attribute a ON a.attrelid = x.indrelid AND a.attnum = x.indkey[k]
                  WHERE NOT a.attnotnull)
ORDER BY x.indisprimary DESC, x.indnkeyatts, ic.relname
LIMIT 1
