-- Subjects erased from $1 to $2, of a tenant ($3) or of all, by policy: how many, how late, after how long. Index: audit_at; read only.
SELECT e.policy, count(*) AS subjects,
       count(*) FILTER (WHERE e.erased_at > e.due_at + interval '1 day') AS late,
       avg(extract(epoch FROM e.erased_at - e.soft_deleted_at) / 86400)::float8 AS average_days,
       min(extract(epoch FROM e.erased_at - e.soft_deleted_at) / 86400)::float8 AS shortest_days
FROM (
    SELECT a.policy, (a.details ->> 'erased_at')::timestamptz AS erased_at, ebb.recorded_moment(a.details ->> 'due_at') AS due_at,
           -- What began before every time has no length.
           ebb.recorded_moment(NULLIF(a.details ->> 'soft_deleted_at', '-infinity')) AS soft_deleted_at
    FROM ebb.audit a
    WHERE a.action = 'erase' AND (a.details ->> 'erased_at')::timestamptz BETWEEN $1 AND $2 AND ($3::text IS NULL OR a.details ->> 'tenant' = $3)
      -- A record is made after the moment that it names, unless the clock was moved.
      AND a.at >= CASE WHEN ebb.now() = now() THEN $1::timestamptz ELSE '-infinity' END
) e
GROUP BY e.policy
ORDER BY e.policy
