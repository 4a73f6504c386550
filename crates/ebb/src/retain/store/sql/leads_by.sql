-- Whether every leaf of a table ($1) has a B-tree that starts with a column ($2) and has every row where it is not null.
-- Expects pg_index (indrelid); read only.
SELECT COALESCE(bool_and(EXISTS (
    SELECT FROM pg_catalog.pg_index i
    JOIN pg_catalog.pg_class ic ON ic.oid = i.indexrelid
    JOIN pg_catalog.pg_am am ON am.oid = ic.relam AND am.amname = 'btree'
    JOIN pg_catalog.pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = i.indkey[0]
    WHERE i.indrelid = leaf.relid AND i.indisvalid AND i.indisready AND a.attname = $2
      AND (i.indpred IS NULL OR pg_catalog.pg_get_expr(i.indpred, i.indrelid) = '(' || quote_ident($2) || ' IS NOT NULL)'))), false)
FROM (
    SELECT relid::oid AS relid FROM pg_catalog.pg_partition_tree($1::int8::oid) WHERE isleaf
    UNION SELECT $1::int8::oid WHERE NOT EXISTS (SELECT FROM pg_catalog.pg_partition_tree($1::int8::oid))
) leaf
