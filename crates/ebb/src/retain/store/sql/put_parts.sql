-- The parts ($2, $4) of copies of deletions ($1) that end at $3. Index: snapshot_part_pkey.
INSERT INTO ebb.snapshot_part (deletion, part, until, sealed)
SELECT * FROM unnest($1::uuid[], $2::int[], $3::timestamptz[], $4::bytea[])
