-- The table that a policy ($1) has open deletions or holds about, where it is there and another than $2 ($3). It is known by its number,
-- or by its name where it has none here. Index: retain_pkey, anchor_pkey, deletion_open, hold_active. Read only.
SELECT ebb.relation_label(was.oid) FROM ebb.retain r
CROSS JOIN LATERAL (SELECT COALESCE((SELECT c.oid FROM ebb.anchor a JOIN pg_catalog.pg_class c ON c.oid = a.relid
                                     WHERE a.kind = 'retain' AND a.policy = r.policy AND a.home = ebb.home()),
                                    ebb.table_named(r.relation)) AS oid) AS was
WHERE r.policy = $1 AND r.subjects AND r.relation <> $2 AND was.oid <> $3::int8::oid
  AND (EXISTS (SELECT FROM ebb.deletion d WHERE d.policy = r.policy AND d.state IN ('pending', 'warned', 'erasing', 'failed'))
       OR EXISTS (SELECT FROM ebb.hold h WHERE h.policy = r.policy AND h.lifted_at IS NULL))
