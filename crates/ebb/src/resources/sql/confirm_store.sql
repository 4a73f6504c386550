-- Somebody has looked at what the first sweep would take, and lets it: $1 policy, $2 by whom, $3 for which place and
-- server. Expects resource_store_pkey; locks the row.
UPDATE ebb.resource_store SET confirmed_at = ebb.clock(), confirmed_by = $2, confirmed_for = $3 WHERE policy = $1
