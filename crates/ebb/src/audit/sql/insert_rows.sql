-- Inserts a record for each row that was acted on, in the order given: alike but for pseudonym ($9) and due time ($10).
-- Index: none. Lock: ROW EXCLUSIVE on ebb.audit and ebb.audit_pending, nothing that another writer waits for.
INSERT INTO ebb.audit (action, policy, policy_version, relation, rows, cutoff, due_from, due_to, run, node, by_name,
                       subject, details)
SELECT $1, $2, $3, $4, 1, $5, row.due, row.due, $6, $7, $8, row.subject, $11
FROM unnest($9::bytea[], $10::timestamptz[]) WITH ORDINALITY AS row (subject, due, position)
ORDER BY row.position
