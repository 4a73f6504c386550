-- The tables that policies were about when somebody applied them, those that are there, by the names they have now, and of the columns they
-- went by what each is called now. Index: anchor_pkey, pg_attribute_relid_attnum_index; read only.
SELECT a.kind, a.policy, a.typed, n.nspname::text AS schema, c.relname::text AS name,
       (SELECT COALESCE(jsonb_object_agg(was.name, t.attname), '{}') FROM jsonb_each_text(a.columns) AS was (name, number)
        LEFT JOIN pg_catalog.pg_attribute t ON t.attrelid = a.relid AND t.attnum = was.number::int2 AND NOT t.attisdropped) AS columns
FROM ebb.anchor a
JOIN pg_catalog.pg_class c ON c.oid = a.relid
JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE a.home = ebb.home()
