-- What came here with a dump is known by its oid here from now on. Expects few rows; locks those it changes.
SELECT ebb.rehome_detached()
