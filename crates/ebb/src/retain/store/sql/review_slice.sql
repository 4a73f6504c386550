-- What the audit has that no review has seen, at most $1 records: since when it waits and until when this part of it reaches, the last
-- record seen before and the last of these, how many subjects are erased among them, and whether there is more; and which of those before
-- were written by transactions that the last review could not see yet (none of them is under way for a day). What this one cannot see is
-- said by its snapshot. Index: review_pkey, audit_pkey, audit_at (the number is hidden from the planner, which would walk the primary
-- key); read only.
WITH last AS MATERIALIZED (
    SELECT v.snapshot, v.looked_at - interval '1 day' AS since FROM ebb.review v ORDER BY v.id DESC LIMIT 1
), seen AS MATERIALIZED (
    SELECT COALESCE(max(v.reached), 0) AS reached, COALESCE(max(v.until), '-infinity'::timestamptz) AS until FROM ebb.review v
), slice AS (
    SELECT max(s.id) AS upto, max(s.at) AS at, count(*) >= $1 AS full, count(*) FILTER (WHERE s.action = 'erase') AS erased
    FROM (SELECT a.id, a.at, a.action FROM ebb.audit a WHERE a.id > (SELECT seen.reached FROM seen) ORDER BY a.id LIMIT $1) s
)
SELECT seen.until AS since, CASE WHEN slice.full THEN GREATEST(seen.until, slice.at + (ebb.now() - now())) ELSE ebb.now() END AS until,
       seen.reached, COALESCE(slice.upto, seen.reached) AS upto, slice.erased, slice.full AS more,
       ARRAY(SELECT a.id FROM ebb.audit a
             WHERE a.at >= (SELECT last.since FROM last) AND NOT pg_visible_in_snapshot(a.xid, (SELECT last.snapshot FROM last))
               AND a.id + 0 <= (SELECT seen.reached FROM seen) ORDER BY a.id) AS late,
       pg_current_snapshot()::text AS snapshot
FROM seen CROSS JOIN slice
