-- Policies of subjects that nobody follows any more although there are open deletions of theirs or holds in force: how many of each.
-- Index: deletion_open, hold_active; read only.
SELECT p.name, open.count, held.count
FROM ebb.policy p,
    LATERAL (SELECT count(*) FROM ebb.deletion d WHERE d.policy = p.name AND d.state IN ('pending', 'warned', 'erasing', 'failed')) open,
    LATERAL (SELECT count(*) FROM ebb.hold h WHERE h.policy = p.name AND h.lifted_at IS NULL AND (h.until IS NULL OR h.until > ebb.now())) held
WHERE p.kind = 'retain' AND NOT p.enabled AND open.count + held.count > 0
ORDER BY p.name
