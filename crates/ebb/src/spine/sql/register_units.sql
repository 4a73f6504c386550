-- Makes the units of a policy exist: $1 chore, $2 policy, $3 leaves. Expects unit_pkey.
INSERT INTO ebb.unit (unit, chore, policy, leaf)
SELECT $1 || '/' || $2 || '/' || leaf, $1, $2, leaf FROM unnest($3::text[]) AS leaf
ON CONFLICT (unit) DO NOTHING
