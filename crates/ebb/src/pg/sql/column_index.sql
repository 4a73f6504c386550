-- The smallest usable B-tree that starts with the column and covers every row, plus what statistics say of it.
-- Expects pg_index (indrelid); read only. correlation and n_distinct are null before the first ANALYZE.
SELECT (SELECT ic.relname
        FROM pg_catalog.pg_index i
        JOIN pg_catalog.pg_class ic ON ic.oid = i.indexrelid
        JOIN pg_catalog.pg_am am ON am.oid = ic.relam AND am.amname = 'btree'
        JOIN pg_catalog.pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = i.indkey[0]
        WHERE i.indrelid = $1::int8::oid AND i.indisvalid AND i.indisready AND i.indpred IS NULL AND a.attname = $2
        ORDER BY ic.relpages LIMIT 1) AS index_name,
       s.correlation::float8 AS correlation,
       s.n_distinct::float8 AS distinct_values,
       s.null_frac::float8 AS null_share
FROM (SELECT 1) one
LEFT JOIN pg_catalog.pg_stats s
       ON s.schemaname = $3 AND s.tablename = $4 AND s.attname = $2 AND NOT s.inherited
