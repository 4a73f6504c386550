-- Makes missing partitions of a table ($1, column $2, by $3, $4 ahead, unit $5, zone $6), at most $7; how many.
-- Locks the parent SHARE UPDATE EXCLUSIVE when one is missing, and what its foreign keys reference SHARE ROW EXCLUSIVE.
SELECT ebb.add_partitions($1::int8::oid, $2, $3, $4, $5, $6, $7)
