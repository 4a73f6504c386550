-- The overrides of a policy ($1). Index: tenant_override_pkey; read only.
SELECT tenant, retention, spec, enabled, changed_at, changed_by FROM ebb.tenant_override WHERE policy = $1 ORDER BY tenant
