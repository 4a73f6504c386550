-- Inserts one record in the caller's transaction; the trigger puts it on the list of those that wait for a seal.
-- Index: none. Lock: ROW EXCLUSIVE on ebb.audit and ebb.audit_pending, nothing that another writer waits for.
INSERT INTO ebb.audit (action, policy, policy_version, relation, rows, cutoff, due_from, due_to, run, node, by_name,
                       subject, details)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13)
RETURNING id
