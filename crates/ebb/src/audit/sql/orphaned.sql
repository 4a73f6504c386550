-- Blocks that have entries and do not exist, before the first or after block $1. Missing ones in between show as gaps.
-- Index: audit_leaf_pkey, audit_block_pkey. Lock: none.
SELECT DISTINCT l.block
FROM ebb.audit_leaf AS l
WHERE (l.block < 1 OR l.block > $1) AND NOT EXISTS (SELECT FROM ebb.audit_block AS b WHERE b.number = l.block)
ORDER BY l.block
LIMIT 1000
