-- A page of blocks after number $1, up to $2.
-- Index: audit_block_pkey. Lock: none.
SELECT number, previous, root, records, sealed_at, key_id, signature, seal
FROM ebb.audit_block
WHERE number > $1 AND number <= $2
ORDER BY number
LIMIT $3
