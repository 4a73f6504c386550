-- The leaves that hold the rows of the tables $1, with their size now and every usable B-tree: its columns in order and the
-- collations that are not the database's own, whether it is unique or the primary key, and its predicate. Expects pg_index (indrelid); read only.
SELECT t.oid::int8 AS tab, c.oid::int8 AS oid, n.nspname::text AS schema, c.relname::text AS name, pg_catalog.pg_relation_size(c.oid) AS bytes,
       c.reltuples::float8 AS tuples,
       COALESCE((SELECT jsonb_agg(jsonb_build_object(
           'columns', ARRAY(SELECT a.attname FROM unnest(i.indkey::int2[]) WITH ORDINALITY AS k (num, at)
                            JOIN pg_catalog.pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.num
                            WHERE k.at <= i.indnkeyatts ORDER BY k.at),
           'collations', ARRAY(SELECT CASE WHEN l.collname <> 'default' THEN format('%I.%I', ln.nspname, l.collname) END
                               FROM unnest(i.indcollation::oid[]) WITH ORDINALITY AS k (oid, at)
                               LEFT JOIN pg_catalog.pg_collation l ON l.oid = k.oid
                               LEFT JOIN pg_catalog.pg_namespace ln ON ln.oid = l.collnamespace
                               WHERE k.at <= i.indnkeyatts ORDER BY k.at),
           'unique', i.indisunique AND i.indimmediate, 'primary', i.indisprimary, 'expressions', i.indexprs IS NOT NULL,
           'predicate', pg_catalog.pg_get_expr(i.indpred, i.indrelid)) ORDER BY i.indexrelid)
         FROM pg_catalog.pg_index i
         JOIN pg_catalog.pg_class ic ON ic.oid = i.indexrelid
         JOIN pg_catalog.pg_am am ON am.oid = ic.relam AND am.amname IN ('btree', 'hash')
         WHERE i.indrelid = c.oid AND i.indisvalid AND i.indisready), '[]') AS indexes
FROM unnest($1::int8[]) AS t (oid)
JOIN LATERAL (
    SELECT relid FROM pg_catalog.pg_partition_tree(t.oid::oid) WHERE isleaf
    UNION SELECT t.oid::oid::regclass
      WHERE NOT EXISTS (SELECT FROM pg_catalog.pg_partition_tree(t.oid::oid))
) leaves ON true
JOIN pg_catalog.pg_class c ON c.oid = leaves.relid
JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
ORDER BY 1, 3, 4
