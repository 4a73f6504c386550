-- What is to be dropped and may be tried now: $1 policy, $2 how many, $3 orphans only. Also what a node left behind that
-- died between claim and confirmation. Expects resource_dropping; read only.
SELECT id, name, store_id, orphan, seen_modified
FROM ebb.resource
WHERE policy = $1 AND state IN ('dropping', 'blocked') AND retry_at <= ebb.now() AND (orphan OR NOT $3)
ORDER BY retry_at, id
LIMIT $2
