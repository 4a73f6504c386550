-- How much somebody allowed a policy ($1) past its brake. Index: brake_pkey; read only.
SELECT allow_rows FROM ebb.brake WHERE policy = $1
