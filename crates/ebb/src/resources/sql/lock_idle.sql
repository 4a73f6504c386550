-- Locks resources that nobody seems to refer to: $1 policy, $2 how many. Only a look: whoever acts looks again, in the
-- next statement. Expects resource_used and reference_pkey. FOR UPDATE, which an incref under way makes pass by.
SELECT r.id
FROM ebb.resource r
WHERE r.policy = $1 AND r.state IN ('creating', 'live')
  AND NOT EXISTS (SELECT FROM ebb.reference f WHERE f.resource = r.id)
ORDER BY r.id
LIMIT $2
FOR UPDATE SKIP LOCKED
