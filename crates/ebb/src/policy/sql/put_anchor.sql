-- What a policy ($1 kind, $2 name) is about from now on: $3 the table as it names it, $4 its number, $5 columns and $6 their numbers.
-- Index: anchor_pkey.
INSERT INTO ebb.anchor (kind, policy, typed, relid, columns)
VALUES ($1, $2, $3, $4::int8::oid, (SELECT COALESCE(jsonb_object_agg(c.name, c.number), '{}') FROM unnest($5::text[], $6::int2[]) AS c (name, number)))
ON CONFLICT (kind, policy) DO UPDATE
SET typed = EXCLUDED.typed, relid = EXCLUDED.relid, columns = EXCLUDED.columns, home = EXCLUDED.home
