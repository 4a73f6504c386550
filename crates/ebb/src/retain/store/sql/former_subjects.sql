-- Subjects of a policy ($1) whom closed deletions, or holds that are over, still name: at most $2 of each, after the place where the last
-- look ended; and moves that place on, back to the beginning after the last of them. Index: deletion_former, hold_named, retain_pkey.
-- Lock: the policy's row of ebb.retain, where the place moves.
WITH place AS (
    SELECT COALESCE(r.restored_after, '00000000-0000-0000-0000-000000000000') AS deletion, COALESCE(r.lifted_after, 0) AS hold
    FROM ebb.retain r WHERE r.policy = $1
), deletions AS (
    SELECT d.id, d.subject_id FROM ebb.deletion d
    WHERE d.policy = $1 AND d.state = 'restored' AND d.subject_id IS NOT NULL AND d.id > (SELECT p.deletion FROM place p)
    ORDER BY d.id LIMIT $2
), holds AS (
    SELECT h.id, h.subject_id, h.lifted_at, h.until FROM ebb.hold h
    WHERE h.policy = $1 AND h.subject_id IS NOT NULL AND h.id > (SELECT p.hold FROM place p)
    ORDER BY h.id LIMIT $2
), next AS (
    SELECT (SELECT d.id FROM deletions d ORDER BY d.id OFFSET $2 - 1) AS deletion,
           (SELECT h.id FROM holds h ORDER BY h.id OFFSET $2 - 1) AS hold
), moved AS (
    UPDATE ebb.retain r SET restored_after = n.deletion, lifted_after = n.hold
    FROM next n
    WHERE r.policy = $1 AND (r.restored_after IS DISTINCT FROM n.deletion OR r.lifted_after IS DISTINCT FROM n.hold)
)
SELECT d.subject_id FROM deletions d
UNION
SELECT h.subject_id FROM holds h WHERE h.lifted_at IS NOT NULL OR h.until <= ebb.now()
