-- Shows in status how far the partitions of a unit ($1) reach ($2). Expects unit_pkey.
UPDATE ebb.unit SET shape = $2 WHERE unit = $1 AND shape IS DISTINCT FROM $2
