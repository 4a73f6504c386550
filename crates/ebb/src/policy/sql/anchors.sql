-- The tables that policies were about when somebody applied them, those that are there, by the names they have now. Index: anchor_pkey;
-- read only.
SELECT a.kind, a.policy, a.typed, n.nspname::text AS schema, c.relname::text AS name
FROM ebb.anchor a
JOIN pg_catalog.pg_class c ON c.oid = a.relid
JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE a.home = ebb.home()
