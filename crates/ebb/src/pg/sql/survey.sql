-- Tables with a column of a time type whose name says that a row ends then, the likeliest column first. Whole tables
-- only: a partition goes with its parent. Expects pg_attribute (attrelid); read only.
WITH likely (name, rank) AS (
    VALUES ('expires_at', 1), ('expired_at', 2), ('expire_at', 3), ('expires', 4), ('expires_on', 5), ('expiry', 6),
           ('expiry_date', 7), ('expiration', 8), ('expiration_date', 9), ('expiration_time', 10), ('expire_time', 11),
           ('valid_until', 12), ('valid_to', 13), ('delete_after', 14), ('purge_after', 15), ('keep_until', 16)
)
SELECT c.oid::int8 AS oid, n.nspname AS schema, c.relname AS name,
       array_agg(a.attname::text ORDER BY l.rank) AS columns,
       array_agg(coalesce(b.typname, t.typname)::text ORDER BY l.rank) AS types
FROM pg_catalog.pg_class c
JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
JOIN pg_catalog.pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
JOIN likely l ON l.name = lower(a.attname)
JOIN pg_catalog.pg_type t ON t.oid = a.atttypid
LEFT JOIN pg_catalog.pg_type b ON b.oid = t.typbasetype
WHERE c.relkind IN ('r', 'p') AND NOT c.relispartition AND c.relpersistence <> 't'
  AND NOT EXISTS (SELECT FROM pg_catalog.pg_inherits i WHERE i.inhrelid = c.oid)
  AND n.nspname NOT IN ('ebb', 'pg_catalog', 'information_schema') AND n.nspname NOT LIKE 'pg\_toast%'
  AND coalesce(b.typname, t.typname) IN ('timestamp', 'timestamptz', 'date')
  AND pg_catalog.has_table_privilege(c.oid, 'SELECT')
GROUP BY c.oid, n.nspname, c.relname
ORDER BY n.nspname, c.relname
