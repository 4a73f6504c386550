-- Overrides that are shorter than their policy's default. Read only.
SELECT o.policy, o.tenant, o.spec ->> 'retention' FROM ebb.tenant_override o JOIN ebb.retain r ON r.policy = o.policy
WHERE o.retention < r.grace ORDER BY 1, 2
