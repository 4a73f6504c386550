-- Erasures before their time, from $1 to $2, of a tenant ($3) or of all. Asks only the audit and the history of policies:
-- the floor of the version that erased always counts; unless the erasure was requested, so does the retention that the tenant last
-- had by the audit, or the grace, and the whole time between a warning and the erasure. Whoever was to be warned and was not went too
-- early, whenever it was. Of terms that changed just then the shorter one counts. Read only.
WITH erasure AS (
    SELECT a.id, a.policy, a.policy_version, a.details ->> 'tenant' AS tenant, (a.details ->> 'deletion')::uuid AS deletion,
           ebb.recorded_moment(a.details ->> 'soft_deleted_at') AS soft_deleted_at,
           (a.details ->> 'warned_at')::timestamptz AS warned_at,
           (a.details ->> 'erased_at')::timestamptz AS erased_at,
           COALESCE((a.details ->> 'expedited')::boolean, false) AS expedited,
           h.spec, COALESCE(h.spec ->> 'zone', 'UTC') AS zone
    FROM ebb.audit a
    LEFT JOIN ebb.policy_history h ON h.kind = 'retain' AND h.name = a.policy AND h.version = a.policy_version
    WHERE a.action = 'erase' AND (a.details ->> 'erased_at')::timestamptz BETWEEN $1 AND $2
      AND ($3::text IS NULL OR a.details ->> 'tenant' = $3)
)
SELECT e.id AS record, e.policy, e.deletion, e.soft_deleted_at, e.erased_at, over.not_before
FROM erasure e
-- The tenant's own, as it was set last before this record, and as the version that erased knew it.
LEFT JOIN LATERAL (
    SELECT o.details ->> 'retention' AS term FROM ebb.audit o
    WHERE (e.spec ->> 'tenant_override')::boolean AND o.action = 'override' AND o.policy = e.policy AND o.details ->> 'tenant' = e.tenant
      AND o.id < e.id
    ORDER BY o.id DESC LIMIT 1) last ON true
LEFT JOIN LATERAL (
    SELECT o.details ->> 'retention' AS term FROM ebb.audit o
    WHERE (e.spec ->> 'tenant_override')::boolean AND o.action = 'override' AND o.policy = e.policy AND o.details ->> 'tenant' = e.tenant
      AND o.policy_version <= e.policy_version
    ORDER BY o.id DESC LIMIT 1) known ON true
CROSS JOIN LATERAL (
    SELECT GREATEST(
               CASE WHEN e.spec ? 'warn_before' AND COALESCE(e.spec ->> 'on_undeliverable', 'stop') = 'stop' AND NOT e.expedited
                         AND e.warned_at IS NULL THEN 'infinity'::timestamptz END,
               e.warned_at,
               min(ends.at) FILTER (WHERE terms.rule = 'floor'),
               min(ends.at) FILTER (WHERE terms.rule = 'kept' AND NOT e.expedited),
               min(ends.at) FILTER (WHERE terms.rule = 'warned' AND NOT e.expedited)) AS not_before
    FROM (
        VALUES ('floor', e.soft_deleted_at, COALESCE(e.spec ->> 'floor', '0s')),
               ('kept', e.soft_deleted_at, COALESCE(last.term, e.spec ->> 'grace')),
               ('kept', e.soft_deleted_at, COALESCE(known.term, e.spec ->> 'grace'))
        -- Any time between warning and erasure that anybody was ever told; the first to end counts.
        UNION ALL
        SELECT 'warned', e.warned_at, v.spec -> 'warn_before' ->> 0 FROM ebb.policy_history v WHERE v.kind = 'retain' AND v.name = e.policy
        UNION ALL
        SELECT 'warned', e.warned_at, o.details -> 'warn_before' ->> 0 FROM ebb.audit o
        WHERE o.action = 'override' AND o.policy = e.policy AND o.details ->> 'tenant' = e.tenant
    ) AS terms (rule, since, written)
    CROSS JOIN LATERAL (SELECT ebb.reported_end(terms.since, terms.written, e.zone) AS at) ends
) over
WHERE over.not_before IS NULL OR e.erased_at < over.not_before
ORDER BY e.id
LIMIT 1000
