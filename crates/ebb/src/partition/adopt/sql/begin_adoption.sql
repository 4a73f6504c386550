-- Writes the plan down before its first statement: $1 table, $2 its oid, $3 policy, $4 plan, $5 what the table looked like
-- before the plan was made. Nothing where somebody came first. Expects adoption_pkey.
INSERT INTO ebb.adoption (relation, relid, policy, plan, portrait) VALUES ($1, $2::int8::oid, $3, $4, $5)
ON CONFLICT (relation) DO NOTHING
