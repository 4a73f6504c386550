-- How long the guards of a table ($1) keep keys that end before its rows do, which are kept for $2 (null: for ever) after the
-- end of their $3; with how long it should be. Read only.
SELECT g.term::text, x.wanted::text
FROM ebb.guards($1::int8::oid) g, (SELECT COALESCE($2::interval + 3 * ('1 ' || $3)::interval, interval '100 years') AS wanted) x
WHERE g.term < x.wanted
ORDER BY 1
LIMIT 1
