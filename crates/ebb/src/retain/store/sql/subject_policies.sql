-- Policies over subjects. Index: none; they are few. Read only.
SELECT r.policy FROM ebb.retain r WHERE r.subjects ORDER BY r.policy
