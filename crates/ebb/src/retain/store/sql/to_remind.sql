-- Warned deletions of a policy ($1) whose time for a reminder has come, after a place ($2, $3) in their order, at most $4; $5 is
-- the longest time before that anybody has. Of several whose time has come only the last goes out. Index: deletion_due,
-- warning_pkey, hold_active. Lock: FOR UPDATE SKIP LOCKED.
SELECT d.id, d.subject_id, d.tenant, d.deleted_at, d.due_at, s.step, s.before, o.spec -> 'texts' AS texts
FROM ebb.deletion d
JOIN ebb.retain r ON r.policy = d.policy
LEFT JOIN ebb.tenant_override o ON o.policy = r.policy AND o.tenant = d.tenant AND r.tenant_override
JOIN ebb.warning w ON w.deletion = d.id AND w.step = 0 AND w.accepted_at IS NOT NULL AND w.settled
CROSS JOIN LATERAL (
    SELECT (t.at - 1)::int4 AS step, t.before
    FROM unnest(COALESCE(o.warn_before, r.warn_before)) WITH ORDINALITY AS t (before, at)
    WHERE t.at > 1 AND d.due_at <= ebb.later(ebb.now(), t.before, r.zone)
      AND ebb.retained_until(d.policy, d.tenant, d.deleted_at, false) <= ebb.later(ebb.now(), t.before, r.zone)
    ORDER BY t.at DESC LIMIT 1
) s
WHERE d.policy = $1 AND d.state IN ('pending', 'warned') AND NOT d.expedited
  AND d.due_at > ebb.now() AND d.due_at <= ebb.later(ebb.now(), $5, r.zone)
  AND (d.due_at, d.id) > (COALESCE($2, '-infinity'::timestamptz), COALESCE($3, '00000000-0000-0000-0000-000000000000'::uuid))
  AND NOT EXISTS (SELECT FROM ebb.warning a WHERE a.deletion = d.id AND a.step = s.step)
  AND NOT EXISTS (SELECT FROM ebb.hold h WHERE h.policy = d.policy AND h.subject_id = d.subject_id
                  AND h.lifted_at IS NULL AND (h.until IS NULL OR h.until > ebb.now()))
ORDER BY d.due_at, d.id
LIMIT $4
FOR UPDATE OF d SKIP LOCKED
