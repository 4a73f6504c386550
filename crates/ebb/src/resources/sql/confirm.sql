-- The store no longer has these ($1): they are tombstones now; $2 says why where we did not drop them. Expects
-- resource_pkey; locks the rows. Only who finds them still claimed records it.
UPDATE ebb.resource r
SET state = 'dropped', dropped_at = ebb.clock(), problem = t.problem
FROM unnest($1::int8[], $2::text[]) AS t (id, problem)
WHERE r.id = t.id AND r.state IN ('dropping', 'blocked')
RETURNING r.name
