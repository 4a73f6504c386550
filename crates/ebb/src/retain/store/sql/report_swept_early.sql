-- Rows that went before their time by their age, from $1 to $2, among the records after $3 up to $4 and those named ($5): in a sweep,
-- or with a partition. Asks only the audit, and the history of policies for versions of which that has no record: everything up to `newest` went at a
-- moment at which the floor and the term of that version have to be over, or, where tenants have terms of their own, the shortest that any
-- of them ever had: a record does not say whose rows it is about. Index: audit_pkey, audit_at, audit_version, audit_override; read only.
WITH own AS MATERIALIZED (
    SELECT DISTINCT o.policy, o.details ->> 'retention' AS term FROM ebb.audit o WHERE o.action = 'override' AND o.details ->> 'retention' IS NOT NULL
), swept AS MATERIALIZED (
    SELECT a.id, a.policy, a.policy_version AS version, a.relation, a.rows, COALESCE(a.cutoff, a.due_to) AS newest,
           COALESCE((a.details ->> 'as_of')::timestamptz, a.at) AS deleted_at
    FROM ebb.audit a
    WHERE a.action IN ('expire', 'drop_partition') AND a.policy_version > 0 AND COALESCE(a.cutoff, a.due_to) IS NOT NULL
      AND (a.id > $3 AND a.id <= $4 OR a.id = ANY ($5::int8[]))
      -- A record is made after the moment that it names, unless the clock was moved.
      AND a.at >= CASE WHEN ebb.now() = now() THEN $1::timestamptz ELSE '-infinity' END
      AND COALESCE((a.details ->> 'as_of')::timestamptz, a.at) BETWEEN $1 AND $2
), version AS MATERIALIZED (
    SELECT s.policy, s.version, COALESCE(sealed.spec, kept.spec) AS spec
    FROM (SELECT DISTINCT policy, version FROM swept) s
    LEFT JOIN LATERAL (
        SELECT p.details -> 'spec' AS spec FROM ebb.audit p
        WHERE p.action = 'policy' AND p.policy = s.policy AND p.policy_version = s.version
          AND p.details ->> 'kind' IN ('expire', 'retain', 'partition')
        ORDER BY p.id LIMIT 1) sealed ON true
    LEFT JOIN LATERAL (
        SELECT h.spec FROM ebb.policy_history h
        WHERE h.kind IN ('expire', 'retain', 'partition') AND h.name = s.policy AND h.version = s.version
        ORDER BY h.changed_at LIMIT 1) kept ON true
)
SELECT s.id AS record, s.policy, s.relation AS table, s.rows, s.newest, s.deleted_at, over.not_before
FROM swept s
LEFT JOIN version v ON v.policy = s.policy AND v.version = s.version
CROSS JOIN LATERAL (SELECT COALESCE(v.spec ->> 'zone', 'UTC') AS zone) by
CROSS JOIN LATERAL (
    SELECT GREATEST(
               CASE WHEN v.spec IS NULL THEN 'infinity'::timestamptz END,
               ebb.reported_end(s.newest, COALESCE(v.spec ->> 'floor', '0s'), by.zone),
               LEAST(ebb.reported_end(s.newest, COALESCE(v.spec ->> 'keep', v.spec ->> 'older_than', '0s'), by.zone),
                     (SELECT min(ebb.reported_end(s.newest, own.term, by.zone)) FROM own
                      WHERE (v.spec ->> 'tenant_override')::boolean AND own.policy = s.policy))) AS not_before
) over
WHERE s.deleted_at < over.not_before
ORDER BY s.id
