-- Counts one batch in its own transaction: $1 run, $2 rows, $3 cutoff, $4 shape. Expects run_pkey.
UPDATE ebb.run
SET rows = rows + $2, batches = batches + 1, cutoff = $3, shape = $4
WHERE id = $1
