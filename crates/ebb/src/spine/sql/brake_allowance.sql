-- What somebody allowed a policy ($1) after its brake tripped. Expects brake_pkey; read only.
SELECT allow_rows FROM ebb.brake WHERE policy = $1
