-- The runs after one ($1) that say something about the demo's tables. Expects run_pkey; read only.
SELECT r.id, r.policy, r.leaf, r.status, r.rows, r.batches, r.error,
       extract(epoch FROM coalesce(r.finished_at, clock_timestamp()) - r.started_at)::float8 AS seconds
FROM ebb.run r
WHERE r.id > $1 AND (r.policy <> 'keep' OR r.leaf = 'ebb.once_key')
ORDER BY r.id
