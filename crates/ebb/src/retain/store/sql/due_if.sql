-- How many open deletions of a policy ($1) are due now, how many would be if its grace were $2, its floor $3, it warned ($4)
-- or went on after a warning that could not be delivered ($5), tenants had terms of their own ($6), and its zone were $7, how many
-- of these are not due now, and how many would be due later, but sooner than now; where nobody follows the policy yet ($8 is false) none is.
-- Besides, at most $9 subjects who would be due: those who are already or, where nobody is, all. By terms alone, which a due time may
-- not follow yet. Index: deletion_due, warning_pkey; read only.
WITH looked AS MATERIALIZED (
    SELECT d.subject_id, t.is_at, t.would_be_at,
           $8 AND t.is_at <= ebb.now() AND has.enabled IS NOT FALSE
               AND (r.warn_before = '{}' OR d.expedited OR w.accepted_at IS NOT NULL OR w.failed_at IS NOT NULL AND r.proceed) AS is_due,
           t.would_be_at <= ebb.now() AND o.enabled IS NOT FALSE
               AND (NOT $4 OR d.expedited OR w.accepted_at IS NOT NULL OR w.failed_at IS NOT NULL AND $5) AS would_be
    FROM ebb.deletion d
    JOIN ebb.retain r ON r.policy = d.policy
    LEFT JOIN ebb.tenant_override has ON has.policy = r.policy AND has.tenant = d.tenant AND r.tenant_override
    LEFT JOIN ebb.tenant_override o ON o.policy = r.policy AND o.tenant = d.tenant AND $6
    LEFT JOIN ebb.warning w ON w.deletion = d.id AND w.step = 0
    CROSS JOIN LATERAL (
        SELECT GREATEST(ebb.later(d.deleted_at, r.floor, r.zone),
                        CASE WHEN NOT d.expedited THEN ebb.later(d.deleted_at, COALESCE(has.retention, r.grace), r.zone) END,
                        CASE WHEN NOT d.expedited THEN ebb.later(w.accepted_at, w.before, r.zone) END,
                        d.not_before) AS is_at,
               GREATEST(ebb.later(d.deleted_at, $3, $7),
                        CASE WHEN NOT d.expedited THEN ebb.later(d.deleted_at, COALESCE(o.retention, $2), $7) END,
                        CASE WHEN NOT d.expedited THEN ebb.later(w.accepted_at, w.before, $7) END,
                        d.not_before) AS would_be_at
    ) t
    WHERE d.policy = $1 AND d.state IN ('pending', 'warned')
)
SELECT count(*) FILTER (WHERE l.is_due) AS now, count(*) FILTER (WHERE l.would_be) AS would_be,
       count(*) FILTER (WHERE l.would_be AND NOT l.is_due) AS more,
       count(*) FILTER (WHERE $8 AND l.would_be_at < l.is_at AND l.would_be_at > ebb.now()) AS sooner,
       ARRAY(SELECT s.subject_id FROM looked s WHERE s.would_be AND s.is_due = $8 LIMIT $9) AS subjects
FROM looked l
