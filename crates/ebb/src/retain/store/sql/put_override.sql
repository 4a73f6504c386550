-- Sets a tenant's override: $1 policy, $2 tenant, $3 retention, $4 spec, $5 enabled, $6 by, $7 when to warn.
-- Index: tenant_override_pkey.
INSERT INTO ebb.tenant_override (policy, tenant, retention, spec, enabled, changed_by, warn_before)
VALUES ($1, $2, $3, $4, $5, $6, $7)
ON CONFLICT (policy, tenant) DO UPDATE
SET retention = EXCLUDED.retention, spec = EXCLUDED.spec, enabled = EXCLUDED.enabled, changed_by = EXCLUDED.changed_by,
    warn_before = EXCLUDED.warn_before, changed_at = clock_timestamp()
