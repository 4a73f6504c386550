-- The adoption of a table ($1). A dump that was restored knows its table by name, where it is in this state, and not by its
-- number; 0 where there is none. Expects adoption_pkey; read only.
SELECT a.relation, a.policy, a.state, a.step, a.plan,
       CASE WHEN a.home = ebb.home() THEN a.relid::int8
            ELSE COALESCE(ebb.table_named(pg_catalog.format('%I.%I', a.plan ->> 'schema',
                a.plan ->> CASE a.state WHEN 'adopted' THEN 'history' ELSE 'table' END))::int8, 0) END AS relid
FROM ebb.adoption a WHERE a.relation = $1
