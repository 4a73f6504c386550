-- What a policy ($1) has taken out, or is about to: with kind $2, zone $3, keep $4 and how long it stays detached $5
-- (null: for ever). `due` asks everything again that allows it to be dropped. What came with a dump has its name alone, until
-- settle_detached.sql was there. Expects detached_pkey; read only.
SELECT COALESCE(c.oid, d.relid)::int8 AS oid, d.relation, d.state, d.lower_bound::text AS lower_bound, d.upper_bound::text AS upper_bound,
       d.detached_at, n.nspname::text AS schema_name, c.relname::text AS table_name, i.inhrelid IS NOT NULL AS attached, COALESCE(i.inhdetachpending, false) AS pending,
       COALESCE(i.inhrelid IS NULL AND d.home = ebb.home() AND d.state = 'detached'
           AND ebb.is_over(d.upper_bound AT TIME ZONE ebb.partition_zone($2, $3), $4::interval, $3)
           AND d.detached_at + $5::interval <= ebb.now(), false) AS due
FROM ebb.detached d
LEFT JOIN pg_catalog.pg_class c ON c.oid = CASE WHEN d.home = ebb.home() THEN d.relid ELSE ebb.table_named(d.relation) END
LEFT JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
LEFT JOIN pg_catalog.pg_inherits i ON i.inhrelid = c.oid
WHERE d.policy = $1
ORDER BY d.upper_bound
