-- The latest erasure of a subject, by its pseudonym ($1), by itself or along with another. Index: audit_erased_subject,
-- audit_along_subject. Lock: none.
SELECT max(found.id)
FROM (SELECT id FROM ebb.audit WHERE action = 'erase' AND subject = $1
      UNION ALL
      SELECT id FROM ebb.audit WHERE action = 'erase_along' AND subject = $1) AS found
