-- How many open deletions of a policy ($1) fall due on each of the $3 days after a moment ($2): day 0 is what is due by then. Those on hold
-- are left out. Index: deletion_due, hold_active; read only.
SELECT GREATEST(0, ceil(extract(epoch FROM d.due_at - $2) / 86400))::int AS day, count(*)
FROM ebb.deletion d
WHERE d.policy = $1 AND d.state IN ('pending', 'warned') AND d.due_at <= $2 + make_interval(hours => 24 * $3)
  AND NOT EXISTS (SELECT FROM ebb.hold h WHERE h.policy = d.policy AND h.subject_id = d.subject_id AND h.lifted_at IS NULL
                  AND (h.until IS NULL OR h.until > ebb.now()))
GROUP BY 1
