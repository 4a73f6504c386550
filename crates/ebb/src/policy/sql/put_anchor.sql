-- What a policy ($1 kind, $2 name) is about from now on: $3 the table as it names it, $4 its number, $5 columns and $6 their numbers.
-- Nobody follows one that is switched off (not $7), and nobody has agreed to what its names are by now: it stays about the table and the
-- columns that it was about, and what it names besides is added, until it is switched on. Index: anchor_pkey.
INSERT INTO ebb.anchor AS a (kind, policy, typed, relid, columns)
VALUES ($1, $2, $3, $4::int8::oid, (SELECT COALESCE(jsonb_object_agg(c.name, c.number), '{}') FROM unnest($5::text[], $6::int2[]) AS c (name, number)))
ON CONFLICT (kind, policy) DO UPDATE
SET typed = EXCLUDED.typed, relid = EXCLUDED.relid, home = EXCLUDED.home,
    columns = EXCLUDED.columns || CASE WHEN NOT $7 AND a.relid = EXCLUDED.relid AND a.home = EXCLUDED.home THEN a.columns ELSE '{}' END
WHERE $7 OR a.typed <> EXCLUDED.typed OR a.relid = EXCLUDED.relid OR a.home <> EXCLUDED.home
