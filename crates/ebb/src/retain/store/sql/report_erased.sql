-- Subjects erased from $1 to $2, of a tenant ($3) or of all, by policy: how many, how late, after how long. Read only.
SELECT a.policy, count(*) AS subjects,
       count(*) FILTER (WHERE (a.details ->> 'erased_at')::timestamptz > (a.details ->> 'due_at')::timestamptz + interval '1 day') AS late,
       avg(extract(epoch FROM (a.details ->> 'erased_at')::timestamptz - (a.details ->> 'soft_deleted_at')::timestamptz) / 86400)::float8 AS average_days,
       min(extract(epoch FROM (a.details ->> 'erased_at')::timestamptz - (a.details ->> 'soft_deleted_at')::timestamptz) / 86400)::float8 AS shortest_days
FROM ebb.audit a
WHERE a.action = 'erase' AND (a.details ->> 'erased_at')::timestamptz BETWEEN $1 AND $2 AND ($3::text IS NULL OR a.details ->> 'tenant' = $3)
GROUP BY a.policy
ORDER BY a.policy
