-- A run within its limits releases the brake of its policy ($1). Index: brake_pkey.
DELETE FROM ebb.brake WHERE policy = $1
