-- What holds keep from a policy ($1), as conditions on rows of its tables; nothing while nobody is on hold. Asked after
-- the gate was passed. Index: gate_pkey, reach_relation, hold_active; read only.
SELECT r.policy, r.relation, r.conditions, r.erased
FROM ebb.gate g
JOIN ebb.reach r ON r.relation = ANY (g.relations)
WHERE g.policy = $1
  AND EXISTS (SELECT FROM ebb.hold h WHERE h.policy = r.policy AND h.lifted_at IS NULL
              AND (h.until IS NULL OR h.until > ebb.now()))
ORDER BY r.policy, r.relation
