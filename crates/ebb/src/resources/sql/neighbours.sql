-- Other policies than $1 that look after the place $2, with their patterns. Expects resource_store_pkey and policy_name;
-- read only.
SELECT s.policy, s.pattern
FROM ebb.resource_store s JOIN ebb.policy p ON p.kind = 'resources' AND p.name = s.policy AND p.enabled
WHERE s.location = $2 AND s.policy <> $1
ORDER BY s.policy
