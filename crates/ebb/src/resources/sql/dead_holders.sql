-- Locks holders that are dead for a third of their term: $1 how many. Expects holder_collect_at. FOR UPDATE: an incref
-- under way makes it pass by, and whoever is dead cannot be prolonged meanwhile.
SELECT id, name
FROM ebb.holder
WHERE collect_at <= clock_timestamp()
ORDER BY collect_at
LIMIT $1
FOR UPDATE SKIP LOCKED
