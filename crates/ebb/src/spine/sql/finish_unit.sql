-- Says when a unit is due next: $1 unit, $2 run, $3 succeeded (null: neither), $4 next_at, $5 shape, $6 rows still pending.
-- A trigger that came during the run stays for the next one when it came after the run began.
UPDATE ebb.unit
SET last_run = $2,
    last_success_at = CASE WHEN $3 THEN clock_timestamp() ELSE last_success_at END,
    failures = CASE WHEN $3 THEN 0 WHEN $3 IS NULL THEN failures ELSE failures + 1 END,
    next_at = $4,
    shape = COALESCE($5, shape),
    pending = COALESCE($6, pending),
    counted_at = CASE WHEN $6 IS NULL THEN counted_at ELSE ebb.now() END,
    throttle = NULL
WHERE unit = $1
