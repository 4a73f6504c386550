-- Whether there is a record ($1). Index: audit_pkey. Lock: none.
SELECT EXISTS (SELECT FROM ebb.audit WHERE id = $1)
