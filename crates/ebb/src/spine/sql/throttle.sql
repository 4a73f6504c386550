-- Shows why a unit rests ($2, null when it does not). Expects unit_pkey.
UPDATE ebb.unit SET throttle = $2 WHERE unit = $1 AND throttle IS DISTINCT FROM $2
