-- Open deletions ($1) whose subjects are of these tenants ($2) by now are due by the terms of these, and not before what a warning
-- promised. Index: deletion_pkey, warning_pkey. Lock: the deletions, held already. Returns what is due when.
UPDATE ebb.deletion d
SET tenant = n.tenant,
    due_at = GREATEST(ebb.retained_until(d.policy, n.tenant, d.deleted_at, d.expedited), d.not_before,
                      CASE WHEN NOT d.expedited THEN
                          (SELECT ebb.later(w.accepted_at, w.before, r.zone) FROM ebb.warning w JOIN ebb.retain r ON r.policy = d.policy
                           WHERE w.deletion = d.id AND w.step = 0)
                      END)
FROM unnest($1::uuid[], $2::text[]) AS n (id, tenant)
WHERE d.id = n.id AND d.state IN ('pending', 'warned', 'failed')
RETURNING d.id, d.subject_id, d.due_at
