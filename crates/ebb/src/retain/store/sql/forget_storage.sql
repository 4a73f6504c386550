-- What was measured of a policy ($1) before. Index: tenant_storage_pkey.
DELETE FROM ebb.tenant_storage WHERE policy = $1
