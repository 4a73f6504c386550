-- Writes the plan down before its first statement: $1 table, $2 its oid, $3 policy, $4 plan. Expects adoption_pkey.
INSERT INTO ebb.adoption (relation, relid, policy, plan) VALUES ($1, $2::int8::oid, $3, $4)
