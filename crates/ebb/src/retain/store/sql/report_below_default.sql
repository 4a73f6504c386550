-- Overrides of a tenant ($1) or of all that are shorter than their policy's default. Read only.
SELECT o.policy, o.tenant, o.spec ->> 'retention' FROM ebb.tenant_override o JOIN ebb.retain r ON r.policy = o.policy
WHERE o.retention < r.grace AND ($1::text IS NULL OR o.tenant = $1) ORDER BY 1, 2
