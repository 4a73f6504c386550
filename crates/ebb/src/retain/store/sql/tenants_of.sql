-- The tenants of deletions ($1), in their order, as they were when their subjects' rows were last seen. Index: deletion_pkey; read only.
SELECT d.tenant FROM unnest($1::uuid[]) WITH ORDINALITY AS s (id, at) LEFT JOIN ebb.deletion d ON d.id = s.id ORDER BY s.at
