-- Every erasure on record. Index: audit_erased_subject; read only.
SELECT policy, subject, (details ->> 'soft_deleted_at')::timestamptz FROM ebb.audit
WHERE action = 'erase' AND subject IS NOT NULL ORDER BY id
