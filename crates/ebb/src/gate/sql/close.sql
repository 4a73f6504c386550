-- Waits for batches behind gates to end; others wait for this transaction. All of them at once and in the order of their
-- names, as holds lock them, so that nobody waits in a circle. Index: none; there is one for each policy. Lock: FOR UPDATE.
SELECT g.policy FROM ebb.gate g ORDER BY g.policy FOR UPDATE
