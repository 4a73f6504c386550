-- Adds to the copies of deletions ($1) of a policy ($2) that end at $3: their keys ($4), how many parts ($5) and rows ($6) they have
-- by now, and whether that is all ($7). Index: snapshot_pkey. Lock: the deletion's, held already.
INSERT INTO ebb.snapshot (deletion, policy, until, wrapped, parts, rows, complete)
SELECT s.deletion, $2, s.until, s.wrapped, s.parts, s.rows, s.complete
FROM unnest($1::uuid[], $3::timestamptz[], $4::bytea[], $5::int[], $6::bigint[], $7::boolean[])
     AS s (deletion, until, wrapped, parts, rows, complete)
ON CONFLICT (deletion) DO UPDATE
SET until = EXCLUDED.until, wrapped = EXCLUDED.wrapped, parts = EXCLUDED.parts, rows = EXCLUDED.rows, complete = EXCLUDED.complete
