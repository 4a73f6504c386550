-- What is known about the store of a policy ($1). Expects resource_store_pkey; read only.
SELECT policy, location, generation, confirmed_at, confirmed_by, confirmed_for, report
FROM ebb.resource_store
WHERE policy = $1
