-- The last block, if there is one.
-- Index: audit_block_pkey, backwards. Lock: none.
SELECT number, previous, root, records, sealed_at, key_id, signature, seal
FROM ebb.audit_block
ORDER BY number DESC
LIMIT 1
