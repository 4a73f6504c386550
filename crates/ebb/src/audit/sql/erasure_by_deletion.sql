-- The erasure of a deletion ($1). Index: audit_erased_deletion. Lock: none.
SELECT id FROM ebb.audit WHERE action = 'erase' AND details ->> 'deletion' = $1 ORDER BY id DESC LIMIT 1
