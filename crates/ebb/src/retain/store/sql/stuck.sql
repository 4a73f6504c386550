-- Subjects that could not be erased after all their attempts, by policy, with the last error. Index: none; they are few.
SELECT policy, count(*), max(error) FROM ebb.deletion WHERE state = 'failed' GROUP BY policy ORDER BY policy
