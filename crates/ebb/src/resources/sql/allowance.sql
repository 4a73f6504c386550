-- How many orphans somebody has allowed a policy ($1) to take after its breaker stopped it. Expects brake_pkey; read only.
SELECT allow_rows FROM ebb.brake WHERE policy = $1
