-- The CHECKs on derived columns that partitions of a table ($1, by column $2, counted in $3) have without a proof: rows that
-- are right could be refused by them. Read only.
SELECT pg_catalog.format('%I.%I', n.nspname, c.relname), pg_catalog.quote_ident(k.conname)
FROM pg_catalog.pg_inherits i
JOIN pg_catalog.pg_constraint k ON k.conrelid = i.inhrelid AND k.contype = 'c' AND k.conname LIKE 'ebb\_derived\_%'
JOIN pg_catalog.pg_class c ON c.oid = i.inhrelid
JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE i.inhparent = $1::int8::oid
  AND NOT EXISTS (SELECT FROM ebb.derived_columns(i.inhrelid, $2, ebb.partition_kind($1::int8::oid, $2, $3)) d WHERE k.conkey = ARRAY[d.number])
ORDER BY 1, 2
