-- A record for each erased subject: $1 policy, $2 version, $3 table, $4 run, $5 node, then for each its pseudonym ($6),
-- rows ($7), due time ($8) and details ($9). Index: none. Lock: ROW EXCLUSIVE on ebb.audit and ebb.audit_pending.
INSERT INTO ebb.audit (action, policy, policy_version, relation, rows, due_from, due_to, run, node, by_name, subject, details)
SELECT 'erase', $1, $2, $3, e.rows, e.due_at, e.due_at, $4, $5, 'ebb', e.subject, e.details::jsonb
FROM unnest($6::bytea[], $7::bigint[], $8::timestamptz[], $9::text[]) WITH ORDINALITY AS e (subject, rows, due_at, details, at)
ORDER BY e.at
