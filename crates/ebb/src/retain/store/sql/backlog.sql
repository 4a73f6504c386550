-- How open deletions stand, by policy, counted up to $1: those that the next run may take, and those whose time has come and who wait (a
-- hold, `unless`, a value that somebody shares, a warning that has not been delivered) as they were last looked at; how many are open at
-- all, and how many subjects are on hold, deleted or not. Index: deletion_due, deletion_claimed, deletion_open, warning_pkey,
-- hold_active; read only.
SELECT r.policy, r.relation, o.due + c.claimed AS due, o.oldest_due, o.blocked + c.blocked AS blocked, every.open, held.on_hold
FROM ebb.retain r
CROSS JOIN LATERAL (
    SELECT count(*) FILTER (WHERE NOT s.waits AND s.told) AS due, min(s.due_at) FILTER (WHERE NOT s.waits AND s.told) AS oldest_due,
           count(*) FILTER (WHERE s.waits) AS blocked
    FROM (SELECT d.due_at,
                 r.warn_before = '{}' OR d.expedited OR COALESCE(ebb.later(w.accepted_at, w.before, r.zone) <= ebb.now(), w.failed_at IS NOT NULL AND r.proceed, false) AS told,
                 ebb.still_blocked(d.blocked, d.policy, d.subject_id) IS NOT NULL
                 OR (r.warn_before <> '{}' AND NOT d.expedited AND w.accepted_at IS NULL AND NOT (w.failed_at IS NOT NULL AND r.proceed))
                 OR EXISTS (SELECT FROM ebb.hold h WHERE h.policy = d.policy AND h.subject_id = d.subject_id AND h.lifted_at IS NULL
                            AND (h.until IS NULL OR h.until > ebb.now())) AS waits
          FROM ebb.deletion d
          LEFT JOIN ebb.warning w ON w.deletion = d.id AND w.step = 0
          WHERE d.policy = r.policy AND d.state IN ('pending', 'warned') AND d.due_at <= ebb.now()
          ORDER BY d.due_at LIMIT $1) AS s
) AS o
CROSS JOIN LATERAL (SELECT count(*) FILTER (WHERE b.blocked IS NULL) AS claimed, count(b.blocked) AS blocked
                    FROM ebb.deletion d CROSS JOIN LATERAL (SELECT ebb.still_blocked(d.blocked, d.policy, d.subject_id) AS blocked) AS b
                    WHERE d.policy = r.policy AND d.state = 'erasing') AS c
CROSS JOIN LATERAL (SELECT count(*) AS open
                    FROM (SELECT FROM ebb.deletion d WHERE d.policy = r.policy AND d.state IN ('pending', 'warned', 'erasing', 'failed')
                          LIMIT $1) AS s) AS every
CROSS JOIN LATERAL (SELECT count(*) AS on_hold
                    FROM (SELECT FROM ebb.hold h WHERE h.policy = r.policy AND h.lifted_at IS NULL AND (h.until IS NULL OR h.until > ebb.now())
                          LIMIT $1) AS s) AS held
WHERE r.subjects
ORDER BY r.policy
