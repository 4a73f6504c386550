-- The hold on a subject ($2) of a policy ($1), and the other policies that leave its rows alone. Index: hold_active,
-- reach_pkey; read only.
SELECT h.reason, h.until, h.placed_at, h.placed_by,
       ARRAY(SELECT g.policy FROM ebb.gate g WHERE g.policy <> h.policy
             AND g.relations && ARRAY(SELECT r.relation FROM ebb.reach r WHERE r.policy = h.policy) ORDER BY 1) AS binds
FROM ebb.hold h
WHERE h.policy = $1 AND h.subject_id = $2 AND h.lifted_at IS NULL AND (h.until IS NULL OR h.until > ebb.now())
