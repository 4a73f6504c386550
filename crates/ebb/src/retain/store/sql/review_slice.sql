-- What the audit has that no review has seen, at most $1 records: since when it waits and until when this part of it reaches, the last
-- record seen before and the last of these, how many subjects are erased among them, and whether there is more.
-- Index: review_pkey, audit_pkey; read only.
WITH seen AS (
    SELECT COALESCE(max(v.reached), 0) AS reached, COALESCE(max(v.until), '-infinity'::timestamptz) AS until FROM ebb.review v
), slice AS (
    SELECT max(s.id) AS upto, max(s.at) AS at, count(*) >= $1 AS full, count(*) FILTER (WHERE s.action = 'erase') AS erased
    FROM (SELECT a.id, a.at, a.action FROM ebb.audit a WHERE a.id > (SELECT seen.reached FROM seen) ORDER BY a.id LIMIT $1) s
)
SELECT seen.until AS since, CASE WHEN slice.full THEN GREATEST(seen.until, slice.at + (ebb.now() - now())) ELSE ebb.now() END AS until,
       seen.reached, COALESCE(slice.upto, seen.reached) AS upto, slice.erased, slice.full AS more
FROM seen CROSS JOIN slice
