-- A run begins: its trigger has been heard. Expects unit_pkey.
UPDATE ebb.unit SET triggered = false WHERE unit = $1 AND triggered
