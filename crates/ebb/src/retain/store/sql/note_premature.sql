-- Keeps erasures before their time ($1 records, $2 policies) in mind; those that were not known yet. Index: premature_pkey.
INSERT INTO ebb.premature (record, policy)
SELECT p.record, p.policy FROM unnest($1::bigint[], $2::text[]) AS p (record, policy)
ON CONFLICT DO NOTHING
RETURNING record
