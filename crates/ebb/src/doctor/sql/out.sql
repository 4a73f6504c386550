-- Partitions that are out of their tables, each with the policy that took it out and the table; only those that are there. Read only.
SELECT d.policy, d.relation, d.parent FROM ebb.detached d
JOIN pg_catalog.pg_class c ON c.oid = CASE WHEN d.home = ebb.home() THEN d.relid ELSE ebb.table_named(d.relation) END
WHERE NOT c.relispartition
ORDER BY 1, 2
