-- How many open deletions of a tenant ($2) of a policy ($1) are due sooner, but not now, when its subjects stay for $4 instead of $3 (null:
-- the policy's grace). Index: deletion_due, warning_pkey; read only.
SELECT count(*) FROM ebb.deletion d
JOIN ebb.retain r ON r.policy = d.policy
LEFT JOIN ebb.warning w ON w.deletion = d.id AND w.step = 0
CROSS JOIN LATERAL (SELECT GREATEST(ebb.later(d.deleted_at, r.floor, r.zone), ebb.later(w.accepted_at, w.before, r.zone), d.not_before) AS at) least
CROSS JOIN LATERAL (SELECT GREATEST(least.at, ebb.later(d.deleted_at, COALESCE($3, r.grace), r.zone)) AS is_at,
                           GREATEST(least.at, ebb.later(d.deleted_at, COALESCE($4, r.grace), r.zone)) AS would_be_at) t
WHERE d.policy = $1 AND d.tenant = $2 AND d.state IN ('pending', 'warned') AND NOT d.expedited
  AND t.would_be_at < t.is_at AND t.would_be_at > ebb.now()
