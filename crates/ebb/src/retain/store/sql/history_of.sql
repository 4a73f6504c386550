-- What became of a subject ($2) of a policy ($1), deletion by deletion, and the holds on it; the latest $3. Index: deletion_subject,
-- audit_deletion, warning_pkey, hold_subject; read only.
SELECT e.at, e.what, e.by, e.note, e.deletion
FROM (
    SELECT d.deleted_at AS at, 'deleted' AS what, d.opened_by AS by, NULL AS note, d.id AS deletion, d.opened_at AS since, 0 AS place
    FROM ebb.deletion d WHERE d.policy = $1 AND d.subject_id = $2
    UNION ALL
    SELECT COALESCE(w.accepted_at, w.failed_at, w.send_at),
           CASE WHEN w.accepted_at IS NOT NULL THEN 'warned' WHEN w.failed_at IS NOT NULL THEN 'not warned' ELSE 'warning planned' END,
           NULL, w.error, d.id, d.opened_at, 1 + w.step
    FROM ebb.deletion d JOIN ebb.warning w ON w.deletion = d.id WHERE d.policy = $1 AND d.subject_id = $2
    UNION ALL
    SELECT a.at, CASE a.action WHEN 'replay' THEN 'to be erased again' ELSE 'erasure requested' END, a.by_name, NULL, d.id, d.opened_at, 900
    FROM ebb.deletion d JOIN ebb.audit a ON a.details ->> 'deletion' = d.id::text AND a.action IN ('erase_requested', 'replay')
    WHERE d.policy = $1 AND d.subject_id = $2 AND d.expedited
    UNION ALL
    SELECT d.closed_at, d.state, d.closed_by, NULL, d.id, d.opened_at, 1000
    FROM ebb.deletion d WHERE d.policy = $1 AND d.subject_id = $2 AND d.closed_at IS NOT NULL
    UNION ALL
    SELECT h.placed_at, 'hold', h.placed_by, h.reason, NULL, h.placed_at, 0
    FROM ebb.hold h WHERE h.policy = $1 AND h.subject_id = $2
    UNION ALL
    SELECT h.lifted_at, 'release', h.lifted_by, NULL, NULL, h.lifted_at, 0
    FROM ebb.hold h WHERE h.policy = $1 AND h.subject_id = $2 AND h.lifted_at IS NOT NULL
) AS e
ORDER BY e.since DESC, e.place DESC
LIMIT $3
