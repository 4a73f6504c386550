-- Makes the units of a policy exist: $1 chore, $2 policy, $3 leaves, $4 when a new one is due first (null: at once),
-- $5 the latest time at which any is due. Expects unit_pkey.
INSERT INTO ebb.unit AS u (unit, chore, policy, leaf, next_at)
SELECT $1 || '/' || $2 || '/' || leaf, $1, $2, leaf, COALESCE($4::timestamptz, '-infinity') FROM unnest($3::text[]) AS leaf
ON CONFLICT (unit) DO UPDATE SET next_at = $5::timestamptz WHERE u.next_at > $5::timestamptz
