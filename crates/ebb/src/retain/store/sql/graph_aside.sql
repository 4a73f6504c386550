-- What partitioning has beside the tables that people know: a partition that was taken out, with the table that it belonged to; and
-- what is being made for one, or is left of it and empty (null). Read only.
WITH known AS MATERIALIZED (
    SELECT p.parent, ebb.policy_table(p.parent) AS oid FROM (SELECT DISTINCT d.parent FROM ebb.detached d) p
)
SELECT c.oid::int8 AS oid, known.oid::int8 AS out_of
FROM ebb.detached d
JOIN known ON known.parent = d.parent AND known.oid IS NOT NULL
JOIN pg_catalog.pg_class c ON c.oid = CASE WHEN d.home = ebb.home() THEN d.relid ELSE ebb.table_named(d.relation) END
WHERE NOT c.relispartition
UNION ALL
SELECT c.oid::int8, NULL
FROM (SELECT ebb.table_named(p ->> 'relation') AS oid FROM ebb.split s, jsonb_array_elements(s.plan -> 'parts') p
      WHERE s.state IN ('splitting', 'abandoning')
      UNION ALL
      SELECT ebb.table_named(s.plan ->> 'source') FROM ebb.split s WHERE s.state = 'undone'
      UNION ALL
      SELECT ebb.table_named(pg_catalog.format('%I.%I', a.plan ->> 'schema', a.plan ->> 'parent')) FROM ebb.adoption a
      UNION ALL
      SELECT ebb.table_named(pg_catalog.format('%I.%I', l ->> 0, l ->> 1)) FROM ebb.adoption a, jsonb_array_elements(a.plan -> 'leftovers') l
      WHERE a.state = 'rolled back') x
JOIN pg_catalog.pg_class c ON c.oid = x.oid
WHERE NOT c.relispartition
