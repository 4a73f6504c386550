-- The same as after a change of their policy for these open deletions ($1), as marking comes by. Returns whether all of them could be
-- looked at. Index: deletion_pkey, warning_pkey. Lock: FOR UPDATE SKIP LOCKED.
WITH mine AS MATERIALIZED (
    SELECT d.id FROM ebb.deletion d WHERE d.id = ANY ($1) AND d.state IN ('pending', 'warned') FOR UPDATE SKIP LOCKED
), moved AS (
    UPDATE ebb.deletion d
    SET due_at = n.due_at
    FROM (SELECT d.id, GREATEST(ebb.retained_until(d.policy, d.tenant, d.deleted_at, d.expedited), d.not_before,
                                CASE WHEN NOT d.expedited THEN ebb.later(w.accepted_at, w.before, r.zone) END) AS due_at
          FROM mine JOIN ebb.deletion d ON d.id = mine.id
          JOIN ebb.retain r ON r.policy = d.policy
          LEFT JOIN ebb.warning w ON w.deletion = d.id AND w.step = 0) AS n
    WHERE d.id = n.id AND d.due_at IS DISTINCT FROM n.due_at
)
SELECT (SELECT count(*) FROM mine) >= (SELECT count(*) FROM ebb.deletion d WHERE d.id = ANY ($1) AND d.state IN ('pending', 'warned'))
