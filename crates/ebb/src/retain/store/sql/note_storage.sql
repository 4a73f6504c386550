-- What the rows of a policy ($1) take: $2 tenants, $3 rows, $4 bytes, $5 counted. Index: tenant_storage_pkey.
INSERT INTO ebb.tenant_storage (policy, tenant, rows, bytes, exact)
SELECT $1, s.tenant, s.rows, s.bytes, $5
FROM unnest($2::text[], $3::bigint[], $4::bigint[]) AS s (tenant, rows, bytes)
ON CONFLICT (policy, tenant) DO UPDATE SET rows = EXCLUDED.rows, bytes = EXCLUDED.bytes, exact = EXCLUDED.exact, at = clock_timestamp()
