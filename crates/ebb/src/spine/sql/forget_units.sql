-- Drops the units that no policy has any more, unless somebody works on them: $1 the units that still exist, $2 the
-- chores that this node knows (one without a signing key knows nothing of seals). A run that was cut off and that no later
-- one will close ends as abandoned. Expects run_unit.
WITH gone AS (
    DELETE FROM ebb.lease l
    USING ebb.unit u
    WHERE u.unit = l.unit AND u.chore = ANY($2) AND NOT l.unit = ANY($1)
      AND (l.holder IS NULL OR l.expires_at <= clock_timestamp())
    RETURNING l.unit
),
left_behind AS (
    UPDATE ebb.run r SET status = 'abandoned', finished_at = clock_timestamp()
    FROM gone WHERE r.unit = gone.unit AND r.status = 'running'
)
DELETE FROM ebb.unit u USING gone WHERE u.unit = gone.unit
