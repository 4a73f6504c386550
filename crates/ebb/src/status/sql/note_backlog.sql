-- What a look at a unit ($1) found: $2 pending rows, $3 the oldest due time. Expects unit_pkey.
UPDATE ebb.unit SET pending = $2, oldest_due = $3, counted_at = ebb.now() WHERE unit = $1
