-- Takes a tenant's override ($2) of a policy ($1) away. Index: tenant_override_pkey.
DELETE FROM ebb.tenant_override WHERE policy = $1 AND tenant = $2
