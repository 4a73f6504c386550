-- Columns of a policy's table ($1 kind, $2 name, $3 table) that have the name of another one than when it was applied, and what that one
-- is called now, where it is there. Index: anchor_pkey, pg_attribute_relid_attnam_index. Read only.
SELECT t.attname::text AS column_name, was.attname::text AS now_called
FROM ebb.anchor a
CROSS JOIN LATERAL jsonb_each_text(a.columns) AS c (name, number)
JOIN pg_catalog.pg_attribute t ON t.attrelid = a.relid AND t.attname = c.name AND t.attnum <> c.number::int2
LEFT JOIN pg_catalog.pg_attribute was ON was.attrelid = a.relid AND was.attnum = c.number::int2 AND NOT was.attisdropped
WHERE a.kind = $1 AND a.policy = $2 AND a.relid = $3::int8::oid AND a.home = ebb.home()
ORDER BY 1
