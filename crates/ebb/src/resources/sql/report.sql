-- What a sweep of a policy ($1) found ($2). Expects resource_store_pkey; locks the row.
UPDATE ebb.resource_store SET report = $2 WHERE policy = $1
