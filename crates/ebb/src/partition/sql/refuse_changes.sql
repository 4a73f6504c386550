-- Refuses where the way back of an adoption ($1) from its table ($2) to the old one ($3, by column $4) would lose something.
-- Expects adoption_pkey; changes nothing.
SELECT ebb.carry_changes($1, $2::int8::oid, $3::int8::oid, $4, true)
