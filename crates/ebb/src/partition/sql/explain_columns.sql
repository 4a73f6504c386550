-- What the usual statements on a table ($1, partitioned by $2 with periods of a $3, counted in $4, in zone $5) name: its key,
-- a column generated from the partition column, a column that says when a row is over, how a guard tells the time of a key
-- (that of the primary key rather than another), and three periods from the current one on as the bounds of partitions. Read only.
SELECT $2::text AS column_name,
       COALESCE(k.columns, '{}') AS key_columns, COALESCE(k.types, '{}') AS key_types,
       (SELECT a.attname::text FROM pg_catalog.pg_attribute a
        JOIN pg_catalog.pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
        WHERE a.attrelid = $1::int8::oid AND a.attgenerated <> '' AND pg_catalog.pg_get_expr(d.adbin, d.adrelid) LIKE '%' || $2::text || '%' LIMIT 1) AS derived,
       (SELECT pg_catalog.format('SELECT (%s)::text FROM (SELECT %L::%s AS %I) x', pg_catalog.pg_get_expr(d.adbin, d.adrelid),
               ebb.partition_literal(n.kind, n.this), pg_catalog.format_type(k.atttypid, k.atttypmod), $2::text)
        FROM pg_catalog.pg_attribute a
        JOIN pg_catalog.pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
        JOIN pg_catalog.pg_attribute k ON k.attrelid = a.attrelid AND k.attname = $2::text
        WHERE a.attrelid = $1::int8::oid AND a.attgenerated <> '' AND pg_catalog.pg_get_expr(d.adbin, d.adrelid) LIKE '%' || $2::text || '%' LIMIT 1) AS derived_now,
       (SELECT pg_catalog.format('SELECT count(*) FROM (SELECT l::%s AS %I FROM unnest(%L::text[]) l) x WHERE (%s)::text = $1',
               pg_catalog.format_type(k.atttypid, k.atttypmod), $2::text,
               ARRAY(SELECT ebb.partition_literal(n.kind, b.lower_bound) FROM ebb.partition_bounds($1::int8::oid, n.kind) b WHERE isfinite(b.lower_bound)),
               pg_catalog.pg_get_expr(d.adbin, d.adrelid))
        FROM pg_catalog.pg_attribute a
        JOIN pg_catalog.pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
        JOIN pg_catalog.pg_attribute k ON k.attrelid = a.attrelid AND k.attname = $2::text
        WHERE a.attrelid = $1::int8::oid AND a.attgenerated <> '' AND pg_catalog.pg_get_expr(d.adbin, d.adrelid) LIKE '%' || $2::text || '%' LIMIT 1) AS derived_in,
       (SELECT count(*) FROM ebb.partition_bounds($1::int8::oid, n.kind) b WHERE NOT isfinite(b.lower_bound)) AS open_ended,
       (SELECT a.attname::text FROM pg_catalog.pg_attribute a
        WHERE a.attrelid = $1::int8::oid AND a.attname ~ '^(expires|expiry|expire|valid_until)' AND NOT a.attisdropped LIMIT 1) AS expiry,
       (SELECT pg_catalog.format('SELECT ebb.once_result(%L, jsonb_build_array(%s)::text) #>> ''{}'' (%s)', g.arguments[1],
               string_agg('$' || c.n || '::text', ', ' ORDER BY c.n), string_agg('$' || c.n || ' is ' || c.name, ', ' ORDER BY c.n))
        FROM (SELECT t.tgname, string_to_array(encode(t.tgargs, 'escape'), E'\\000') AS arguments FROM pg_catalog.pg_trigger t
              WHERE t.tgrelid = $1::int8::oid AND t.tgname ~ '^a_ebb_guard(_[0-9]+)?$') g,
             LATERAL (SELECT pg_catalog.quote_ident(convert_from(decode(a, 'escape'), 'UTF8')) AS name, n
                      FROM unnest(g.arguments[4:array_length(g.arguments, 1) - 1]) WITH ORDINALITY u (a, n)) c
        GROUP BY g.tgname, g.arguments
        ORDER BY array_agg(c.name ORDER BY c.n) = array_remove(k.quoted, pg_catalog.quote_ident($2::text)) DESC NULLS LAST, g.tgname LIMIT 1) AS guard,
       ebb.partition_literal(n.kind, n.this) AS this,
       ebb.partition_literal(n.kind, n.this + n.step) AS next,
       ebb.partition_literal(n.kind, n.this + 3 * n.step) AS ahead
FROM (SELECT k.kind, date_trunc($3::text, ebb.now() AT TIME ZONE ebb.partition_zone(k.kind, $5::text)) AS this, ('1 ' || $3::text)::interval AS step
      FROM (SELECT ebb.partition_kind($1::int8::oid, $2::text, $4::text) AS kind) k) n
LEFT JOIN LATERAL (
    SELECT array_agg(a.attname::text ORDER BY p.n) AS columns, array_agg(pg_catalog.format_type(a.atttypid, a.atttypmod) ORDER BY p.n) AS types,
           array_agg(pg_catalog.quote_ident(a.attname) ORDER BY p.n) AS quoted
    FROM pg_catalog.pg_index x, unnest(x.indkey::int2[]) WITH ORDINALITY p (attnum, n)
    JOIN pg_catalog.pg_attribute a ON a.attrelid = $1::int8::oid AND a.attnum = p.attnum
    WHERE x.indrelid = $1::int8::oid AND x.indisprimary
) k ON true
