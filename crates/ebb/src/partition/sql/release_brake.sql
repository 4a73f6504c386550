-- A policy ($1) is within its brake again, or has used its allowance. Expects brake_pkey.
DELETE FROM ebb.brake WHERE policy = $1
