-- Of two tables ($1, $2) the one whose rows are all rows of the other: itself, a partition or a child of it; nothing where
-- they share none. Catalog only; read only.
WITH RECURSIVE up (lower, upper) AS (
    SELECT t, t FROM unnest(ARRAY[$1::int8::oid, $2::int8::oid]) AS t
    UNION
    SELECT up.lower, i.inhparent FROM up JOIN pg_catalog.pg_inherits i ON i.inhrelid = up.upper
)
SELECT lower::int8 FROM up
WHERE (lower = $1::int8::oid AND upper = $2::int8::oid) OR (lower = $2::int8::oid AND upper = $1::int8::oid)
LIMIT 1
