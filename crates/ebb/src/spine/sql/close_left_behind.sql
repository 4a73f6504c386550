-- Ends the runs of a unit ($1) that a dead node left behind, as abandoned with what they had committed. Whoever asks has the unit's lease.
-- Expects run_unit.
UPDATE ebb.run SET status = 'abandoned', finished_at = clock_timestamp()
WHERE unit = $1 AND status = 'running'
