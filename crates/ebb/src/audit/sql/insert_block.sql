-- Adds the next block. The number is the arbiter: of two sealers the second waits here for the first and then fails.
-- Index: audit_block_pkey, unique. Lock: ROW EXCLUSIVE on ebb.audit_block.
INSERT INTO ebb.audit_block (number, previous, root, records, sealed_at, key_id, signature, seal)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8)
