-- Subjects of a policy ($1) on hold, at most $2. Index: hold_active; read only.
SELECT h.subject_id FROM ebb.hold h
WHERE h.policy = $1 AND h.lifted_at IS NULL AND (h.until IS NULL OR h.until > ebb.now())
ORDER BY h.subject_id LIMIT $2
