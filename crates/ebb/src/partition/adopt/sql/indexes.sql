-- The indexes of a table ($1), with the constraint each belongs to, and whether they have its column ($2) as a key. A key
-- is told as people name it, and as the server compares it; `unlike_text` names columns whose equal values can differ as text.
-- One that names the table itself (its rows as a whole) can be printed for no other.
SELECT ic.relname::text AS name, pg_catalog.pg_get_indexdef(x.indexrelid) AS definition, x.indisunique AS is_unique,
       x.indisprimary AS is_primary, x.indisexclusion AS is_exclusion, x.indisvalid AS is_valid, x.indisreplident AS is_replica_identity,
       x.indisclustered AS is_clustered, x.indnatts >= current_setting('max_index_keys')::int AS is_full,
       COALESCE(x.indexprs::text LIKE '%{VAR :varno 1 :varattno 0 %', false) OR COALESCE(x.indpred::text LIKE '%{VAR :varno 1 :varattno 0 %', false) AS is_of_row,
       EXISTS (SELECT FROM generate_series(0, x.indnkeyatts - 1) k JOIN pg_catalog.pg_attribute a ON a.attrelid = x.indrelid AND a.attnum = x.indkey[k]
               WHERE a.attname = $2) AS has_column,
       ARRAY(SELECT COALESCE(a.attname::text, pg_catalog.pg_get_indexdef(x.indexrelid, k + 1, false))
             FROM generate_series(0, x.indnkeyatts - 1) k LEFT JOIN pg_catalog.pg_attribute a ON a.attrelid = x.indrelid AND a.attnum = x.indkey[k] AND x.indkey[k] <> 0
             ORDER BY k) AS key_columns,
       x.indexprs IS NOT NULL AS has_expressions,
       ARRAY(SELECT '(' || pg_catalog.pg_get_indexdef(x.indexrelid, k + 1, false) || ')'
                 || COALESCE((SELECT pg_catalog.format(' COLLATE %I.%I', n.nspname, l.collname) FROM pg_catalog.pg_collation l
                              JOIN pg_catalog.pg_namespace n ON n.oid = l.collnamespace WHERE l.oid = x.indcollation[k]), '')
             FROM generate_series(0, x.indnkeyatts - 1) k ORDER BY k) AS key_expressions,
       ARRAY(SELECT pg_catalog.format('OPERATOR(%I.%s)', n.nspname, o.oprname)
             FROM generate_series(0, x.indnkeyatts - 1) k
             JOIN pg_catalog.pg_opclass c ON c.oid = x.indclass[k]
             JOIN pg_catalog.pg_am m ON m.oid = c.opcmethod AND m.amname = 'btree'
             JOIN pg_catalog.pg_amop e ON e.amopfamily = c.opcfamily AND e.amoplefttype = c.opcintype AND e.amoprighttype = c.opcintype AND e.amopstrategy = 3
             JOIN pg_catalog.pg_operator o ON o.oid = e.amopopr JOIN pg_catalog.pg_namespace n ON n.oid = o.oprnamespace
             ORDER BY k) AS key_operators,
       pg_catalog.pg_get_expr(x.indpred, x.indrelid) AS predicate,
       COALESCE((to_jsonb(x) ->> 'indnullsnotdistinct')::boolean, false) AS nulls_not_distinct,
       ARRAY(SELECT pg_catalog.format('%s is %s', a.attname, pg_catalog.format_type(a.atttypid, a.atttypmod))
             FROM generate_series(0, x.indnkeyatts - 1) k
             JOIN pg_catalog.pg_attribute a ON a.attrelid = x.indrelid AND a.attnum = x.indkey[k]
             JOIN pg_catalog.pg_type d ON d.oid = a.atttypid
             JOIN pg_catalog.pg_type t ON t.oid = CASE WHEN d.typtype = 'd' THEN d.typbasetype ELSE d.oid END
             WHERE NOT ((t.typnamespace = 'pg_catalog'::regnamespace
                         AND (t.typname IN ('int2', 'int4', 'int8', 'oid', 'text', 'varchar', 'name', 'uuid', 'bool', 'date', 'time', 'timestamp', 'timestamptz', 'bytea', 'inet', 'cidr', 'macaddr')
                              OR t.typname IN ('numeric', 'bpchar') AND CASE WHEN d.typtype = 'd' THEN d.typtypmod ELSE a.atttypmod END >= 0))
                        OR t.typtype = 'e')
                OR EXISTS (SELECT FROM pg_catalog.pg_collation l WHERE l.oid = x.indcollation[k] AND NOT l.collisdeterministic)
             ORDER BY k) AS unlike_text,
       con.conname::text AS constraint_name, pg_catalog.pg_get_constraintdef(con.oid) AS constraint_definition,
       pg_catalog.obj_description(x.indexrelid, 'pg_class') AS comment, pg_catalog.array_to_string(ic.reloptions, ', ') AS options,
       (SELECT s.spcname::text FROM pg_catalog.pg_tablespace s WHERE s.oid = ic.reltablespace) AS tablespace,
       pg_catalog.obj_description(con.oid, 'pg_constraint') AS constraint_comment,
       ARRAY(SELECT pg_catalog.format('ALTER COLUMN %s SET STATISTICS %s', a.attnum, a.attstattarget)
             FROM pg_catalog.pg_attribute a WHERE a.attrelid = x.indexrelid AND a.attstattarget >= 0 ORDER BY a.attnum) AS column_statistics
FROM pg_catalog.pg_index x
JOIN pg_catalog.pg_class ic ON ic.oid = x.indexrelid
LEFT JOIN pg_catalog.pg_constraint con ON con.conindid = x.indexrelid AND con.conrelid = x.indrelid AND con.contype IN ('p', 'u', 'x')
WHERE x.indrelid = $1::int8::oid
ORDER BY ic.relname
