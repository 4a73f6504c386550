-- The records of erased accounts.
SELECT id FROM ebb.audit WHERE action = 'erase' AND policy = 'accounts' ORDER BY id
