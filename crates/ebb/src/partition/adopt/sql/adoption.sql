-- The adoption of a table ($1). Expects adoption_pkey; read only.
SELECT relation, relid::int8 AS relid, policy, state, step, plan FROM ebb.adoption WHERE relation = $1
