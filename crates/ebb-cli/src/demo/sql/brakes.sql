-- Brakes that have stopped a run and that nobody has answered yet. Read only.
SELECT policy, due, allowed_before, tripped_at FROM ebb.brake WHERE allow_rows IS NULL ORDER BY policy
