-- Ends a run: $1 run, $2 status, $3 error, $4 skipped, $5 due, $6 failed. Expects run_pkey.
UPDATE ebb.run
SET status = $2, error = $3, skipped = $4, failed = $6, due = COALESCE($5, due), finished_at = clock_timestamp()
WHERE id = $1 AND status = 'running'
RETURNING rows, batches
