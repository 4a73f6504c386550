-- After a change of a policy ($1): open deletions are due when it says now, and not before what a warning promised.
-- Index: deletion_due, warning_pkey.
UPDATE ebb.deletion d
SET due_at = n.due_at
FROM (SELECT d.id, GREATEST(ebb.retained_until(d.policy, d.tenant, d.deleted_at, d.expedited), d.not_before,
                            CASE WHEN NOT d.expedited THEN ebb.later(w.accepted_at, w.before, r.zone) END) AS due_at
      FROM ebb.deletion d
      JOIN ebb.retain r ON r.policy = d.policy
      LEFT JOIN ebb.warning w ON w.deletion = d.id AND w.step = 0
      WHERE d.policy = $1 AND d.state IN ('pending', 'warned')) AS n
WHERE d.id = n.id AND d.state IN ('pending', 'warned') AND d.due_at IS DISTINCT FROM n.due_at
