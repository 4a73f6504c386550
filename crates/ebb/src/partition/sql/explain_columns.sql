-- What the usual statements on a table ($1, partitioned by $2) name: its key, a column generated from the partition
-- column, a column that says when a row is over, and three periods around now as the bounds of its partitions. Read only.
SELECT $2::text AS column_name,
       COALESCE(k.columns, '{}') AS key_columns, COALESCE(k.types, '{}') AS key_types,
       (SELECT a.attname::text FROM pg_catalog.pg_attribute a
        JOIN pg_catalog.pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
        WHERE a.attrelid = $1::int8::oid AND a.attgenerated <> '' AND pg_catalog.pg_get_expr(d.adbin, d.adrelid) LIKE '%' || $2::text || '%' LIMIT 1) AS derived,
       (SELECT pg_catalog.format('SELECT (%s)::text FROM (SELECT %L::%s AS %I) x', pg_catalog.pg_get_expr(d.adbin, d.adrelid),
               ebb.partition_literal(n.kind, date_trunc('month', ebb.now() AT TIME ZONE 'UTC')), pg_catalog.format_type(k.atttypid, k.atttypmod), $2::text)
        FROM pg_catalog.pg_attribute a
        JOIN pg_catalog.pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
        JOIN pg_catalog.pg_attribute k ON k.attrelid = a.attrelid AND k.attname = $2::text
        WHERE a.attrelid = $1::int8::oid AND a.attgenerated <> '' AND pg_catalog.pg_get_expr(d.adbin, d.adrelid) LIKE '%' || $2::text || '%' LIMIT 1) AS derived_now,
       (SELECT count(*) FROM ebb.partition_bounds($1::int8::oid, n.kind) b WHERE NOT isfinite(b.lower_bound)) AS open_ended,
       (SELECT a.attname::text FROM pg_catalog.pg_attribute a
        WHERE a.attrelid = $1::int8::oid AND a.attname ~ '^(expires|expiry|expire|valid_until)' AND NOT a.attisdropped LIMIT 1) AS expiry,
       ebb.partition_literal(n.kind, date_trunc('month', ebb.now() AT TIME ZONE 'UTC')) AS this,
       ebb.partition_literal(n.kind, date_trunc('month', ebb.now() AT TIME ZONE 'UTC') + interval '1 month') AS next,
       ebb.partition_literal(n.kind, date_trunc('month', ebb.now() AT TIME ZONE 'UTC') + interval '3 months') AS ahead
FROM (SELECT ebb.partition_kind($1::int8::oid, $2::text, NULL) AS kind) n
LEFT JOIN LATERAL (
    SELECT array_agg(a.attname::text ORDER BY p.n) AS columns, array_agg(pg_catalog.format_type(a.atttypid, a.atttypmod) ORDER BY p.n) AS types
    FROM pg_catalog.pg_index x, unnest(x.indkey::int2[]) WITH ORDINALITY p (attnum, n)
    JOIN pg_catalog.pg_attribute a ON a.attrelid = $1::int8::oid AND a.attnum = p.attnum
    WHERE x.indrelid = $1::int8::oid AND x.indisprimary
) k ON true
