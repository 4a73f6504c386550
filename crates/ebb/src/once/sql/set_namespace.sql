-- Sets the terms of a namespace as ebb apply has them. Index: once_namespace_pkey. Lock: the namespace's row.
INSERT INTO ebb.once_namespace (name, ttl, lock) VALUES ($1, $2, $3)
ON CONFLICT (name) DO UPDATE SET ttl = excluded.ttl, lock = excluded.lock
