-- The block that a record ($1) is in. Index: audit_leaf_record, audit_block_pkey. Lock: none.
SELECT b.number, b.previous, b.root, b.records, b.sealed_at, b.key_id, b.signature, b.seal
FROM ebb.audit_leaf l JOIN ebb.audit_block b ON b.number = l.block
WHERE l.record = $1
