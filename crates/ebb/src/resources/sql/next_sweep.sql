-- Counts a sweep of a policy ($1) before it begins, so that the marker in the store never runs ahead. Expects
-- resource_store_pkey; locks the row.
UPDATE ebb.resource_store SET generation = generation + 1 WHERE policy = $1 RETURNING generation
