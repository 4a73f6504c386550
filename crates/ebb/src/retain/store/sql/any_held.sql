-- Whether any of these subjects ($2) of a policy ($1) is on hold. Index: hold_active; read only.
SELECT EXISTS (SELECT FROM ebb.hold h WHERE h.policy = $1 AND h.subject_id = ANY($2) AND h.lifted_at IS NULL
               AND (h.until IS NULL OR h.until > ebb.now()))
