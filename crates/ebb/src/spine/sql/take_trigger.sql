-- A run begins: its trigger and its nudges have been heard. Expects unit_pkey and nudge_unit.
WITH heard AS (DELETE FROM ebb.nudge WHERE unit = $1)
UPDATE ebb.unit SET triggered = false WHERE unit = $1 AND triggered
