-- The breaker of a policy ($1) no longer stands, or what was allowed is used up. Expects brake_pkey; locks the row.
DELETE FROM ebb.brake WHERE policy = $1
