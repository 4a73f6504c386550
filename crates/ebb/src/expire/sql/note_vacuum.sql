-- What became of the VACUUM after a large purge: $1 unit, $2 words. Expects unit_pkey.
UPDATE ebb.unit SET vacuum = $2 WHERE unit = $1
