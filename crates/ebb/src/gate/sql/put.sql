-- Gates of policies: $1 has for each the tables it takes rows of. Index: gate_pkey, reach_relation. Lock: the rows, in the order
-- of their names, held already where they exist.
INSERT INTO ebb.gate (policy, relations, bound)
SELECT g.policy, g.relations, EXISTS (SELECT FROM ebb.reach r WHERE r.relation = ANY (g.relations))
FROM (
    SELECT wanted.key AS policy, ARRAY(SELECT pg_catalog.jsonb_array_elements_text(wanted.value)) AS relations
    FROM pg_catalog.jsonb_each($1::jsonb) AS wanted
) AS g
ORDER BY g.policy
ON CONFLICT (policy) DO UPDATE SET relations = EXCLUDED.relations, bound = EXCLUDED.bound
