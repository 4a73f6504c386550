-- The deletion that a record ($1) is about. Index: audit_pkey; read only.
SELECT (details ->> 'deletion')::uuid FROM ebb.audit WHERE id = $1
