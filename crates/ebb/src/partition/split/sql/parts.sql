-- The periods ($3) between two bounds ($4, $5) of a partition of a table ($1, of kind $2, zone $8) whose oldest row is
-- of $6: name, from, to. The first begins where the partition does, so that nothing is refused that was not before; rows
-- older than $7 share one part. One more than can be made (501) tells that there are too many. Read only.
WITH here AS (
    SELECT ('1 ' || $3)::interval AS step, $4::text::timestamp AS lower, $5::text::timestamp AS upper,
           COALESCE(ebb.partition_moment($2, $6), ebb.now() AT TIME ZONE ebb.partition_zone($2, $8)) AS oldest,
           date_trunc($3, $7::text::timestamp) AS since
), begins AS (
    SELECT here.*, CASE WHEN isfinite(lower) THEN greatest(date_trunc($3, lower), since)
                        ELSE greatest(date_trunc($3, least(oldest, upper - step)), since) END AS start
    FROM here
), period AS (
    SELECT b.*, b.start + n * b.step AS from_moment, b.start + (n + 1) * b.step AS to_moment, n
    FROM begins b, generate_series(0, 500) n
    WHERE isfinite(b.start) AND b.start + n * b.step < b.upper
), part AS (
    SELECT CASE WHEN n = 0 AND (NOT isfinite(lower) AND since IS DISTINCT FROM start OR from_moment < lower) THEN lower ELSE from_moment END AS from_moment,
           least(to_moment, upper) AS to_moment, ebb.partition_suffix($3, from_moment) AS suffix
    FROM period
    UNION ALL
    SELECT lower, start, 'before_' || ebb.partition_suffix($3, start) FROM begins WHERE since = start AND lower < start
)
SELECT ebb.free_partition_name($1::int8::oid, suffix) AS name,
       CASE WHEN isfinite(from_moment) THEN ebb.partition_literal($2, from_moment) END AS from_literal,
       ebb.partition_literal($2, to_moment) AS to_literal
FROM part
ORDER BY from_moment
