-- Subjects erased from $1 to $2, of a tenant ($3) or of all, among the records after $4 up to $5, by policy: how many, how late, and of how
-- many it is known after how long, after how many days in all and at least. Index: audit_pkey; read only.
SELECT e.policy, count(*) AS subjects,
       count(*) FILTER (WHERE e.erased_at > e.due_at + interval '1 day') AS late,
       count(e.days) AS timed, COALESCE(sum(e.days), 0)::float8 AS days, min(e.days)::float8 AS shortest_days
FROM (
    SELECT a.policy, went.at AS erased_at, ebb.recorded_moment(a.details ->> 'due_at') AS due_at,
           -- What began before every time has no length.
           extract(epoch FROM went.at - ebb.recorded_moment(NULLIF(a.details ->> 'soft_deleted_at', '-infinity'))) / 86400 AS days
    FROM ebb.audit a
    CROSS JOIN LATERAL (SELECT (a.details ->> 'erased_at')::timestamptz AS at) went
    WHERE a.action = 'erase' AND a.id > $4 AND a.id <= $5 AND went.at BETWEEN $1 AND $2 AND ($3::text IS NULL OR a.details ->> 'tenant' = $3)
      -- A record is made after the moment that it names, unless the clock was moved.
      AND a.at >= CASE WHEN ebb.now() = now() THEN $1::timestamptz ELSE '-infinity' END
) e
GROUP BY e.policy
