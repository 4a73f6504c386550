-- What was taken out in the database that this one was restored from, or has a number that no table has any more, is the table
-- that has its name by now; where none has, it is forgotten. Returns those that a dump left behind. Numbers may change places:
-- DISTINCT ON sorts, so all rows have gone before one comes back. Expects detached_pkey.
WITH strange AS (
    DELETE FROM ebb.detached d
    WHERE d.home <> ebb.home() OR NOT EXISTS (SELECT FROM pg_catalog.pg_class c WHERE c.oid = d.relid)
    RETURNING d.*
), found AS (
    SELECT DISTINCT ON (c.oid) c.oid, s.policy, s.parent, s.relation, s.lower_bound, s.upper_bound, s.state, s.decided_at, s.detached_at
    FROM strange s JOIN pg_catalog.pg_class c ON c.oid = ebb.table_named(s.relation)
    ORDER BY c.oid, s.decided_at DESC
), back AS (
    INSERT INTO ebb.detached (relid, policy, parent, relation, lower_bound, upper_bound, state, decided_at, detached_at)
    SELECT * FROM found ON CONFLICT (relid) DO NOTHING
)
SELECT s.relation FROM strange s
WHERE s.policy = $1 AND s.home <> ebb.home() AND s.relation NOT IN (SELECT f.relation FROM found f)
ORDER BY s.upper_bound
