-- What the rows of each policy take, tenant by tenant, as the review last measured it. Index: tenant_storage_pkey; read only.
SELECT s.policy, s.tenant, s.rows, s.bytes, s.exact, s.at FROM ebb.tenant_storage s WHERE s.tenant <> '' ORDER BY s.policy, s.bytes DESC, s.tenant
