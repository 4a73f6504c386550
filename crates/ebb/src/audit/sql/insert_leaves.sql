-- Says which records are in a block, in their order; the trigger takes them off the list of those that wait.
-- Index: audit_leaf_record, unique: no record is in two blocks. Lock: ROW EXCLUSIVE on ebb.audit_leaf, audit_pending.
INSERT INTO ebb.audit_leaf (block, position, record, hash)
SELECT $1, leaf.position - 1, leaf.record, leaf.hash
FROM unnest($2::bigint[], $3::bytea[]) WITH ORDINALITY AS leaf (record, hash, position)
