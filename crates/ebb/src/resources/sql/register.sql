-- What is known about the store of a policy: $1 policy, $2 location, $3 names, $4 pattern. Expects resource_store_pkey.
INSERT INTO ebb.resource_store AS s (policy, location, names, pattern) VALUES ($1, $2, $3, $4)
ON CONFLICT (policy) DO UPDATE SET location = EXCLUDED.location, names = EXCLUDED.names, pattern = EXCLUDED.pattern
