-- The longest time before that the policy ($1) or a tenant's own terms warn, and whether anybody is reminded too. Index:
-- retain_pkey; read only.
SELECT max(t.before[1]) AS first, max(t.before[2]) AS again
FROM (SELECT r.warn_before AS before FROM ebb.retain r WHERE r.policy = $1
      UNION ALL
      SELECT o.warn_before FROM ebb.tenant_override o JOIN ebb.retain r ON r.policy = o.policy AND r.tenant_override
      WHERE o.policy = $1 AND o.warn_before IS NOT NULL) AS t
