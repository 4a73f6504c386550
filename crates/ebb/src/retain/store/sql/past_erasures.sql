-- Every erasure on record, also of whoever went along with somebody else: of these the soft delete, if any, is not known.
-- Index: audit_erased_subject, audit_along_subject; read only.
SELECT policy, subject, ebb.recorded_moment(COALESCE(details ->> 'soft_deleted_at', details ->> 'erased_at')),
       ebb.recorded_moment(COALESCE(details ->> 'erased_at', details ->> 'soft_deleted_at'))
FROM ebb.audit
WHERE action IN ('erase', 'erase_along') AND subject IS NOT NULL ORDER BY id
