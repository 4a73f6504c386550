-- How it stands with the partitions of a table ($1 of kind $2, by $3, $4 ahead, zone $5, kept $6): all from the catalog,
-- no rows and no sizes, because most looks find nothing to do. Expired: the whole period ended `keep` ago.
-- The runway ends where the first period begins that no partition covers; one on its way out takes no rows. Read only.
WITH bounds AS MATERIALIZED (
    SELECT b.* FROM ebb.partition_bounds($1::int8::oid, $2) b
), here AS (
    SELECT ebb.partition_zone($2, $5) AS zone, ebb.now() AS now
), live AS (
    SELECT b.* FROM bounds b WHERE NOT b.pending
), islands AS (
    SELECT min(b.upper_bound) AS until
    FROM live b, here
    WHERE b.upper_bound > here.now AT TIME ZONE here.zone
      AND EXISTS (SELECT FROM live c WHERE c.lower_bound <= here.now AT TIME ZONE here.zone AND c.upper_bound > here.now AT TIME ZONE here.zone)
      AND NOT EXISTS (SELECT FROM live c WHERE c.lower_bound = b.upper_bound)
)
SELECT here.now,
       (SELECT count(*) FROM bounds) AS partitions,
       (SELECT count(*) FROM ebb.missing_partitions($1::int8::oid, $2, $3, $4, $5)) AS missing,
       COALESCE((CASE WHEN islands.until > '9999-01-01' THEN '9999-01-01' ELSE islands.until END) AT TIME ZONE here.zone, here.now) AS runway_until,
       ARRAY(SELECT b.oid::int8 FROM bounds b
             WHERE ebb.is_over(b.upper_bound AT TIME ZONE here.zone, $6::interval, $5) ORDER BY b.upper_bound) AS expired,
       ARRAY(SELECT b.oid::int8 FROM bounds b WHERE b.pending) AS pending,
       (SELECT ebb.partition_limit(p.partrelid, a.attname) AT TIME ZONE 'UTC' FROM pg_catalog.pg_partitioned_table p
        JOIN pg_catalog.pg_attribute a ON a.attrelid = p.partrelid AND a.attnum = p.partattrs[0]
        WHERE p.partrelid = $1::int8::oid) AS type_ends
FROM here, islands
