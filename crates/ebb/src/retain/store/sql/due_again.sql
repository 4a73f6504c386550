-- After a change of a policy ($1): the $2 open deletions that were due first are due when it says now, and not before what a warning
-- promised. Whether there are more, or some that somebody holds, is noted with the policy: marking goes on. Returns that, and how many
-- have moved. Index: deletion_due, warning_pkey. Lock: FOR UPDATE SKIP LOCKED.
WITH first AS MATERIALIZED (
    SELECT d.id FROM ebb.deletion d
    WHERE d.policy = $1 AND d.state IN ('pending', 'warned')
    ORDER BY d.due_at, d.id LIMIT $2 + 1
), mine AS MATERIALIZED (
    SELECT d.id FROM ebb.deletion d
    WHERE d.id IN (SELECT f.id FROM first f LIMIT $2) AND d.state IN ('pending', 'warned')
    FOR UPDATE SKIP LOCKED
), moved AS (
    UPDATE ebb.deletion d
    SET due_at = n.due_at
    FROM (SELECT d.id, GREATEST(ebb.retained_until(d.policy, d.tenant, d.deleted_at, d.expedited), d.not_before,
                                CASE WHEN NOT d.expedited THEN ebb.later(w.accepted_at, w.before, r.zone) END) AS due_at
          FROM mine JOIN ebb.deletion d ON d.id = mine.id
          JOIN ebb.retain r ON r.policy = d.policy
          LEFT JOIN ebb.warning w ON w.deletion = d.id AND w.step = 0) AS n
    WHERE d.id = n.id AND d.due_at IS DISTINCT FROM n.due_at
    RETURNING 1
)
UPDATE ebb.retain r SET renews = (SELECT count(*) FROM first) > (SELECT count(*) FROM mine)
WHERE r.policy = $1
RETURNING r.renews, (SELECT count(*) FROM moved)
