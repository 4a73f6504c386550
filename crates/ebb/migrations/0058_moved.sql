-- A column that took the name of another is noticed by whoever goes by it, however late it did so.

-- Whether a column that a policy goes by is another than when it was applied. Index: anchor_pkey, pg_attribute_relid_attnam_index.
CREATE FUNCTION ebb.columns_moved(kind text, policy text) RETURNS boolean LANGUAGE sql STABLE
RETURN EXISTS (
    SELECT FROM ebb.anchor a CROSS JOIN LATERAL jsonb_each_text(a.columns) AS c (name, number)
    JOIN pg_catalog.pg_attribute t ON t.attrelid = a.relid AND t.attname = c.name
    WHERE a.kind = columns_moved.kind AND a.policy = columns_moved.policy
      AND CASE WHEN t.attnum <> c.number::int2 THEN a.home = ebb.home() AND a.relid = ebb.policy_table(a.typed) END);
