-- Erasures before their time, from $1 to $2, of a tenant ($3) or of all. Asks only the audit and the history of policies:
-- the floor of the version that erased always counts; its grace too, unless the erasure was requested or the tenant had
-- terms of its own. Whoever was to be warned and was not went too early, whenever it was. Terms are read as they were written (mo is months). Read only.
SELECT e.id AS record, e.policy, e.deletion, e.soft_deleted_at, e.erased_at, e.not_before
FROM (
    SELECT a.id, a.policy, (a.details ->> 'deletion')::uuid AS deletion,
           (a.details ->> 'soft_deleted_at')::timestamptz AS soft_deleted_at,
           (a.details ->> 'erased_at')::timestamptz AS erased_at,
           GREATEST(
               CASE WHEN h.spec ? 'warn_before' AND COALESCE(h.spec ->> 'on_undeliverable', 'stop') = 'stop'
                         AND NOT COALESCE((a.details ->> 'expedited')::boolean, false) AND a.details ->> 'warned_at' IS NULL
                    THEN 'infinity'::timestamptz END,
               (a.details ->> 'warned_at')::timestamptz,
               (a.details ->> 'soft_deleted_at')::timestamptz
                   + COALESCE(regexp_replace(h.spec ->> 'floor', '(\d)mo', '\1mon', 'g'), '0')::interval,
               CASE WHEN NOT COALESCE((a.details ->> 'expedited')::boolean, false)
                         AND NOT EXISTS (SELECT FROM ebb.audit o WHERE o.action = 'override' AND o.policy = a.policy
                                         AND o.details ->> 'tenant' = a.details ->> 'tenant' AND o.id < a.id)
                    THEN (a.details ->> 'soft_deleted_at')::timestamptz
                         + regexp_replace(h.spec ->> 'grace', '(\d)mo', '\1mon', 'g')::interval END) AS not_before
    FROM ebb.audit a
    LEFT JOIN ebb.policy_history h ON h.kind = 'retain' AND h.name = a.policy AND h.version = a.policy_version
    WHERE a.action = 'erase' AND (a.details ->> 'erased_at')::timestamptz BETWEEN $1 AND $2
      AND ($3::text IS NULL OR a.details ->> 'tenant' = $3)
) e
WHERE e.not_before IS NULL OR e.erased_at < e.not_before
ORDER BY e.id
LIMIT 1000
