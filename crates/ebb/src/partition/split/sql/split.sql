-- How the split of a table ($1) stands, and whether it was begun where a dump was taken: that knows the partition by name, and
-- not by its number; 0 where there is none. Expects split_pkey; read only.
SELECT s.relation, s.state, s.step, s.pages, s.page, s.applied, s.plan, s.home <> ebb.home() AS elsewhere,
       CASE WHEN s.home = ebb.home() THEN s.relid::int8 ELSE COALESCE(ebb.table_named(s.plan ->> 'source')::int8, 0) END AS relid,
       ARRAY(SELECT p.name FROM ebb.policy p WHERE p.kind = 'partition' AND ebb.policy_table(p.spec ->> 'table') = ebb.policy_table(s.relation)) AS policies
FROM ebb.split s WHERE s.relation = $1
