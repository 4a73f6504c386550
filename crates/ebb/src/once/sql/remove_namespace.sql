-- Lets a namespace fall back to the defaults. Index: once_namespace_pkey. Lock: the namespace's row.
DELETE FROM ebb.once_namespace WHERE name = $1
