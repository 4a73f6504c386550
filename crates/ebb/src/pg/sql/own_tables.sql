-- The tables of the ebb schema and what they take on disk. Expects pg_class (relnamespace); read only.
SELECT c.relname AS name, pg_catalog.pg_total_relation_size(c.oid) AS bytes
FROM pg_catalog.pg_class c
WHERE c.relnamespace = pg_catalog.to_regnamespace('ebb') AND c.relkind IN ('r', 'p')
ORDER BY c.relname
