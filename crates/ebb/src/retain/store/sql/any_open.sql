-- Whether a policy ($1) has open deletions or holds. Index: deletion_open, hold_active; read only.
SELECT EXISTS (SELECT FROM ebb.deletion d WHERE d.policy = $1 AND d.state IN ('pending', 'warned', 'erasing', 'failed'))
    OR EXISTS (SELECT FROM ebb.hold h WHERE h.policy = $1 AND h.lifted_at IS NULL)
