-- Rows that went before their time by their age, from $1 to $2: in a sweep, or with a partition. Asks only the audit and the history of
-- policies: everything up to `newest` went at a moment at which the floor and the term of that version have to be over, or, where tenants
-- have terms of their own, the shortest that any of them ever had: a record does not say whose rows it is about. Index: audit_at; read only.
WITH own AS (
    SELECT DISTINCT o.policy, o.details ->> 'retention' AS term FROM ebb.audit o WHERE o.action = 'override' AND o.details ->> 'retention' IS NOT NULL
), swept AS (
    SELECT a.id, a.policy, a.relation, a.rows, COALESCE(a.cutoff, a.due_to) AS newest,
           COALESCE((a.details ->> 'as_of')::timestamptz, a.at) AS deleted_at, h.spec, COALESCE(h.spec ->> 'zone', 'UTC') AS zone
    FROM ebb.audit a
    LEFT JOIN ebb.policy_history h ON h.kind IN ('expire', 'retain', 'partition') AND h.name = a.policy AND h.version = a.policy_version
    WHERE a.action IN ('expire', 'drop_partition') AND a.policy_version > 0 AND COALESCE(a.cutoff, a.due_to) IS NOT NULL
      -- A record is made after the moment that it names, unless the clock was moved.
      AND a.at >= CASE WHEN ebb.now() = now() THEN $1 ELSE '-infinity' END
      AND COALESCE((a.details ->> 'as_of')::timestamptz, a.at) BETWEEN $1 AND $2
)
SELECT s.id AS record, s.policy, s.relation AS table, s.rows, s.newest, s.deleted_at, over.not_before
FROM swept s
CROSS JOIN LATERAL (
    SELECT GREATEST(
               CASE WHEN s.spec IS NULL THEN 'infinity'::timestamptz END,
               ebb.reported_end(s.newest, COALESCE(s.spec ->> 'floor', '0s'), s.zone),
               LEAST(ebb.reported_end(s.newest, COALESCE(s.spec ->> 'keep', s.spec ->> 'older_than', '0s'), s.zone),
                     (SELECT min(ebb.reported_end(s.newest, own.term, s.zone)) FROM own
                      WHERE (s.spec ->> 'tenant_override')::boolean AND own.policy = s.policy))) AS not_before
) over
WHERE s.deleted_at < over.not_before
ORDER BY s.id
LIMIT 1000
