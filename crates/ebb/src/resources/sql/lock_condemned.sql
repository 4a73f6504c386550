-- Locks condemned resources whose grace ($2) is over, or that somebody refers to again: $1 policy, $3 how many.
-- Expects resource_condemned and reference_pkey. FOR UPDATE, which an incref under way makes pass by.
SELECT r.id
FROM ebb.resource r
WHERE r.policy = $1 AND r.state = 'condemned'
  AND (r.condemned_at <= ebb.now() - $2::interval OR EXISTS (SELECT FROM ebb.reference f WHERE f.resource = r.id))
ORDER BY r.condemned_at
LIMIT $3
FOR UPDATE SKIP LOCKED
