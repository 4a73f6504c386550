-- The latest erasure of a subject, by its pseudonym ($1). Index: audit_erased_subject. Lock: none.
SELECT id FROM ebb.audit WHERE action = 'erase' AND subject = $1 ORDER BY id DESC LIMIT 1
