-- Refuses where the table ($2, by $3) of an adoption ($1) does not look as it did. Expects adoption_pkey; read only.
SELECT ebb.require_portrait($1, $2::int8::oid, $3)
