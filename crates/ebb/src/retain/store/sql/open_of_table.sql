-- Whether the table of a policy ($1) is still this one ($2 oid, $3 name): its name says so or, after it was renamed, its oid; and how
-- many deletions and holds of its subjects are open. Index: deletion_open, hold_active; read only.
SELECT r.relation = $3 OR r.root IS NOT DISTINCT FROM $2::int8::oid,
       (SELECT count(*) FROM ebb.deletion d WHERE d.policy = r.policy AND d.state IN ('pending', 'warned', 'erasing', 'failed')),
       (SELECT count(*) FROM ebb.hold h WHERE h.policy = r.policy AND h.lifted_at IS NULL AND (h.until IS NULL OR h.until > ebb.now()))
FROM ebb.retain r WHERE r.policy = $1
