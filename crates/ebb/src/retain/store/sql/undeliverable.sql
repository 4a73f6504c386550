-- Subjects whose warning could not be delivered and whose policy says to stop, by policy, with the last error. Index: warning_failed;
-- read only.
SELECT d.policy, count(*), max(w.error)
FROM ebb.warning w
JOIN ebb.deletion d ON d.id = w.deletion AND d.state IN ('pending', 'warned') AND NOT d.expedited
JOIN ebb.retain r ON r.policy = d.policy AND NOT r.proceed AND r.warn_before <> '{}'
WHERE w.failed_at IS NOT NULL AND w.accepted_at IS NULL AND w.step = 0
GROUP BY d.policy ORDER BY d.policy
