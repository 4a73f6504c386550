-- What was allowed to pass the brake of a policy ($1) shrinks by what was taken ($2). Expects brake_pkey; locks the row.
UPDATE ebb.brake SET allow_rows = GREATEST(allow_rows - $2, 0) WHERE policy = $1 AND allow_rows IS NOT NULL
