-- The table that a policy ($1) has open deletions or holds about, where it is there and another than $2. Index: retain_pkey,
-- deletion_open, hold_active. Read only.
SELECT r.relation FROM ebb.retain r
WHERE r.policy = $1 AND r.subjects AND r.relation <> $2
  AND ebb.table_named(r.relation) IS NOT NULL
  AND (EXISTS (SELECT FROM ebb.deletion d WHERE d.policy = r.policy AND d.state IN ('pending', 'warned', 'erasing', 'failed'))
       OR EXISTS (SELECT FROM ebb.hold h WHERE h.policy = r.policy AND h.lifted_at IS NULL))
