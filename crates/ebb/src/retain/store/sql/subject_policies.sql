-- The policies that are about subjects. Index: none; they are few. Read only.
SELECT r.policy FROM ebb.retain r JOIN ebb.policy p ON p.kind = 'retain' AND p.name = r.policy
WHERE r.subjects AND p.enabled ORDER BY r.policy
