-- How long the guards of a table ($1) keep keys that end before its rows do, which are kept for $2 (null: for ever) after the
-- end of their $3; with how long it should be, and whether that is begun already. Read only.
SELECT g.term::text, greatest(x.wanted, g.term)::text, g.term >= x.wanted
FROM ebb.guards($1::int8::oid) g
LEFT JOIN ebb.guard_term t ON t.namespace = g.namespace,
    (SELECT COALESCE($2::interval + 3 * ('1 ' || $3)::interval, interval '100 years') AS wanted) x
WHERE g.term < x.wanted OR NOT t.settled
ORDER BY g.term
LIMIT 1
