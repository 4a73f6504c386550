-- One part ($2) of the copy of a deletion ($1). Index: snapshot_part_pkey; read only.
SELECT sealed FROM ebb.snapshot_part WHERE deletion = $1 AND part = $2
