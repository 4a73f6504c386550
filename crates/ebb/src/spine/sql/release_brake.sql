-- A policy ($1) is within its brake again. Expects brake_pkey; locks the row.
DELETE FROM ebb.brake WHERE policy = $1
