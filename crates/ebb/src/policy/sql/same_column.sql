-- Whether a column ($4) of the table of a policy ($1 kind, $2 name) is the one that was called $3 when it was applied. Index: anchor_pkey,
-- pg_attribute_relid_attnam_index. Read only.
SELECT EXISTS (SELECT FROM ebb.anchor a
               JOIN pg_catalog.pg_attribute t ON t.attrelid = a.relid AND t.attname = $4 AND t.attnum = (a.columns ->> $3)::int2
               WHERE a.kind = $1 AND a.policy = $2 AND a.home = ebb.home())
