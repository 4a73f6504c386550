-- Subjects that could not be erased after $1 attempts, of a tenant ($2) or of all, by policy, with the last error; a claimed one stays
-- claimed.
-- Index: deletion_failed, deletion_claimed; read only.
SELECT s.policy, count(*), max(s.error)
FROM (SELECT d.policy, d.tenant, d.error FROM ebb.deletion d WHERE d.state = 'failed'
      UNION ALL
      SELECT d.policy, d.tenant, d.error FROM ebb.deletion d WHERE d.state = 'erasing' AND d.attempts >= $1) AS s
WHERE $2::text IS NULL OR s.tenant = $2
GROUP BY s.policy ORDER BY s.policy
