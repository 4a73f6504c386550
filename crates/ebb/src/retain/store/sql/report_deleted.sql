-- Rows deleted from $1 to $2, of a tenant ($3) or of all, by day, policy and table, those that came late among them. Index:
-- audit_policy; read only. Sweeps know no tenant and are left out where one is asked for.
SELECT to_char(e.day, 'YYYY-MM-DD') AS day, e.policy, e.relation AS table, sum(e.rows)::int8 AS rows
FROM (
    SELECT date_trunc('day', COALESCE((a.details ->> 'erased_at')::timestamptz, a.at)) AS day, a.policy, t.key AS relation,
           t.value::int8 AS rows
    FROM ebb.audit a, jsonb_each_text(a.details -> 'tables') AS t
    WHERE a.action IN ('erase', 'erase_late') AND COALESCE((a.details ->> 'erased_at')::timestamptz, a.at) BETWEEN $1 AND $2
      AND ($3::text IS NULL OR a.details ->> 'tenant' = $3)
    UNION ALL
    SELECT date_trunc('day', COALESCE(a.cutoff, a.at)), a.policy, a.relation, a.rows
    FROM ebb.audit a
    WHERE a.action = 'expire' AND a.policy IS NOT NULL AND a.at BETWEEN $1 AND $2 AND $3::text IS NULL AND a.details ->> 'set' IS NULL
) e
GROUP BY 1, 2, 3
ORDER BY 1, 2, 3
