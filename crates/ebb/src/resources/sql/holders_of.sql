-- Who refers to a resource ($1). Expects reference_pkey and holder_pkey; read only.
SELECT h.name FROM ebb.reference f JOIN ebb.holder h ON h.id = f.holder WHERE f.resource = $1 ORDER BY h.name
