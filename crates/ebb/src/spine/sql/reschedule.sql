-- A pass that found nothing: $1 unit, $2 next_at, $3 whether that counts as a success. Expects unit_pkey.
UPDATE ebb.unit
SET next_at = $2, triggered = false, throttle = NULL,
    last_success_at = CASE WHEN $3 THEN clock_timestamp() ELSE last_success_at END,
    failures = CASE WHEN $3 THEN 0 ELSE failures END
WHERE unit = $1
