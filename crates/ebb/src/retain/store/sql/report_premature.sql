-- Erasures before their time, from $1 to $2, of a tenant ($3) or of all. Asks only the audit and the history of policies:
-- the floor of the version that erased always counts; unless the erasure was requested, so does the retention that the tenant last
-- had by the audit, or the grace, and the whole time between a warning and the erasure. Whoever was to be warned and was not went too
-- early, whenever it was. Of terms that changed just then the shorter one counts. Terms are read as they were written (mo is months).
-- Read only.
SELECT e.id AS record, e.policy, e.deletion, e.soft_deleted_at, e.erased_at, e.not_before
FROM (
    SELECT a.id, a.policy, (a.details ->> 'deletion')::uuid AS deletion,
           ebb.recorded_moment(a.details ->> 'soft_deleted_at') AS soft_deleted_at,
           (a.details ->> 'erased_at')::timestamptz AS erased_at,
           GREATEST(
               CASE WHEN h.spec ? 'warn_before' AND COALESCE(h.spec ->> 'on_undeliverable', 'stop') = 'stop'
                         AND NOT COALESCE((a.details ->> 'expedited')::boolean, false) AND a.details ->> 'warned_at' IS NULL
                    THEN 'infinity'::timestamptz END,
               (a.details ->> 'warned_at')::timestamptz
                   + CASE WHEN COALESCE((a.details ->> 'expedited')::boolean, false) THEN interval '0' ELSE COALESCE(warned.term, interval '0') END,
               ebb.recorded_moment(a.details ->> 'soft_deleted_at')
                   + COALESCE(regexp_replace(h.spec ->> 'floor', '(\d)mo', '\1mon', 'g'), '0')::interval,
               CASE WHEN NOT COALESCE((a.details ->> 'expedited')::boolean, false)
                    THEN ebb.recorded_moment(a.details ->> 'soft_deleted_at')
                         + LEAST(COALESCE(CASE WHEN kept.own THEN last.term END, kept.grace),
                                 COALESCE(CASE WHEN kept.own THEN known.term END, kept.grace)) END) AS not_before
    FROM ebb.audit a
    LEFT JOIN ebb.policy_history h ON h.kind = 'retain' AND h.name = a.policy AND h.version = a.policy_version
    CROSS JOIN LATERAL (SELECT regexp_replace(h.spec ->> 'grace', '(\d)mo', '\1mon', 'g')::interval AS grace,
                               (h.spec ->> 'tenant_override')::boolean AS own) kept
    -- The tenant's own, as it was set last before this record, and as the version that erased knew it.
    LEFT JOIN LATERAL (
        SELECT regexp_replace(o.details ->> 'retention', '(\d)mo', '\1mon', 'g')::interval AS term
        FROM ebb.audit o WHERE o.action = 'override' AND o.policy = a.policy AND o.details ->> 'tenant' = a.details ->> 'tenant' AND o.id < a.id
        ORDER BY o.id DESC LIMIT 1) last ON true
    LEFT JOIN LATERAL (
        SELECT regexp_replace(o.details ->> 'retention', '(\d)mo', '\1mon', 'g')::interval AS term
        FROM ebb.audit o WHERE o.action = 'override' AND o.policy = a.policy AND o.details ->> 'tenant' = a.details ->> 'tenant'
          AND o.policy_version <= a.policy_version
        ORDER BY o.id DESC LIMIT 1) known ON true
    -- The shortest time between warning and erasure that anybody was ever told.
    LEFT JOIN LATERAL (
        SELECT min(regexp_replace(w.term, '(\d)mo', '\1mon', 'g')::interval) AS term
        FROM (SELECT v.spec -> 'warn_before' ->> 0 FROM ebb.policy_history v WHERE v.kind = 'retain' AND v.name = a.policy
              UNION ALL
              SELECT o.details -> 'warn_before' ->> 0 FROM ebb.audit o
              WHERE o.action = 'override' AND o.policy = a.policy AND o.details ->> 'tenant' = a.details ->> 'tenant') AS w (term)
        WHERE w.term IS NOT NULL) warned ON true
    WHERE a.action = 'erase' AND (a.details ->> 'erased_at')::timestamptz BETWEEN $1 AND $2
      AND ($3::text IS NULL OR a.details ->> 'tenant' = $3)
) e
WHERE e.not_before IS NULL OR e.erased_at < e.not_before
ORDER BY e.id
LIMIT 1000
