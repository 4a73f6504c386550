-- Writes the plan down before its first statement: $1 table, $2 the partition's oid, $3 plan, $4 what the table looked like
-- before that was read. A split that is over, or whose way back is, gives its place to the next. Nothing where
-- somebody came first. Expects split_pkey.
INSERT INTO ebb.split (relation, relid, plan, portrait) VALUES ($1, $2::int8::oid, $3, $4)
ON CONFLICT (relation) DO NOTHING
