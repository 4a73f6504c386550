-- The next remembered links of a policy ($1) after a place ($2, $3), at most $4, all of one horizon, whose transactions have all ended.
-- A horizon is the number of who wrote it, or else (here) of another cluster, from which a dump was restored.
-- Index: late_link_next, deletion_pkey. Lock: FOR UPDATE SKIP LOCKED.
SELECT l.id, l.deletion, l.horizon, l.sealed, CASE WHEN home.yes THEN d.writers ELSE '{}' END AS whole, CASE WHEN home.yes THEN d.partly ELSE '{}' END AS partly, d.tenant, ebb.now() AS now,
       l.horizon % 4294967296 = l.xmin::text::bigint AS here
FROM ebb.late_link l
LEFT JOIN ebb.deletion d ON d.id = l.deletion
CROSS JOIN LATERAL (SELECT d.written_in = (SELECT ebb.home()) AS yes) home
WHERE l.policy = $1
  AND l.horizon = (SELECT o.horizon FROM ebb.late_link o
                   WHERE o.policy = $1 AND (o.horizon, o.id) > ($2, $3)
                     AND (o.horizon <= pg_snapshot_xmin(pg_current_snapshot())::text::bigint
                          OR o.horizon % 4294967296 <> o.xmin::text::bigint)
                   ORDER BY o.horizon, o.id LIMIT 1)
  AND (l.horizon, l.id) > ($2, $3)
ORDER BY l.id
LIMIT $4
FOR UPDATE OF l SKIP LOCKED
