-- Rows deleted from $1 to $2, of a tenant ($3) or of all, among the records after $4 up to $5, by day, policy and table, those that came
-- late among them. Index: audit_pkey; read only. Sweeps and partitions know no tenant and are left out where one is asked for.
SELECT to_char(date_trunc('day', e.at), 'YYYY-MM-DD') AS day, e.policy, e.relation AS table, sum(e.rows)::int8 AS rows
FROM (
    SELECT COALESCE((a.details ->> 'erased_at')::timestamptz, a.at) AS at, a.policy, t.key AS relation, t.value::int8 AS rows
    FROM ebb.audit a, jsonb_each_text(a.details -> 'tables') AS t
    WHERE a.action IN ('erase', 'erase_late') AND a.id > $4 AND a.id <= $5 AND ($3::text IS NULL OR a.details ->> 'tenant' = $3)
      -- A record is made after the moment that it names, unless the clock was moved.
      AND a.at >= CASE WHEN ebb.now() = now() THEN $1::timestamptz ELSE '-infinity' END
    UNION ALL
    SELECT COALESCE((a.details ->> 'as_of')::timestamptz, a.at), a.policy, COALESCE(a.details ->> 'table', a.relation), a.rows
    FROM ebb.audit a
    WHERE a.action IN ('expire', 'drop_partition') AND a.id > $4 AND a.id <= $5 AND a.policy IS NOT NULL AND $3::text IS NULL
      AND a.details ->> 'set' IS NULL AND a.rows > 0
      AND a.at >= CASE WHEN ebb.now() = now() THEN $1::timestamptz ELSE '-infinity' END
) e
WHERE e.at BETWEEN $1 AND $2
GROUP BY 1, 2, 3
