-- Whether any erasure is on record under a pseudonym. Index: audit_erased_subject. Lock: none.
SELECT EXISTS (SELECT FROM ebb.audit WHERE action = 'erase' AND subject IS NOT NULL)
