-- Subjects that could not be erased after $1 attempts, by policy, with the last error; a claimed one stays claimed.
-- Index: deletion_failed, deletion_claimed; read only.
SELECT s.policy, count(*), max(s.error)
FROM (SELECT d.policy, d.error FROM ebb.deletion d WHERE d.state = 'failed'
      UNION ALL
      SELECT d.policy, d.error FROM ebb.deletion d WHERE d.state = 'erasing' AND d.attempts >= $1) AS s
GROUP BY s.policy ORDER BY s.policy
