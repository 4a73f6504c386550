-- Open deletions of a policy ($1) whose time for a first warning has come, also by today's terms, which a due time may not follow yet; after a place ($2, $3) in their order, at most $4;
-- $5 is the longest time before that anybody has. Index: deletion_due, warning_pkey, hold_active. Lock: FOR UPDATE SKIP
-- LOCKED, so a restore or a hold under way is passed by.
SELECT d.id, d.subject_id, d.tenant, d.deleted_at, d.due_at, 0 AS step, t.before[1] AS before, o.spec -> 'texts' AS texts
FROM ebb.deletion d
JOIN ebb.retain r ON r.policy = d.policy
LEFT JOIN ebb.tenant_override o ON o.policy = r.policy AND o.tenant = d.tenant AND r.tenant_override
CROSS JOIN LATERAL (SELECT COALESCE(o.warn_before, r.warn_before) AS before) t
WHERE d.policy = $1 AND d.state IN ('pending', 'warned') AND NOT d.expedited
  AND d.due_at <= ebb.later(ebb.now(), $5, r.zone) AND d.due_at <= ebb.later(ebb.now(), t.before[1], r.zone)
  AND ebb.retained_until(d.policy, d.tenant, d.deleted_at, false) <= ebb.later(ebb.now(), t.before[1], r.zone)
  AND (d.due_at, d.id) > (COALESCE($2, '-infinity'::timestamptz), COALESCE($3, '00000000-0000-0000-0000-000000000000'::uuid))
  AND NOT EXISTS (SELECT FROM ebb.warning w WHERE w.deletion = d.id AND w.step = 0)
  AND NOT EXISTS (SELECT FROM ebb.hold h WHERE h.policy = d.policy AND h.subject_id = d.subject_id
                  AND h.lifted_at IS NULL AND (h.until IS NULL OR h.until > ebb.now()))
ORDER BY d.due_at, d.id
LIMIT $4
FOR UPDATE OF d SKIP LOCKED
