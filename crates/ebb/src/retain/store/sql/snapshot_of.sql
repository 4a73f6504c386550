-- The copy of a deletion ($1). Index: snapshot_pkey; read only.
SELECT policy, until, wrapped, parts, rows, complete FROM ebb.snapshot WHERE deletion = $1
