-- Erasures before their time, from $1 to $2, of a tenant ($3) or of all, among the records after $4 up to $5 and those named ($6).
-- Asks only the audit: the floor of the version that erased always counts; unless a record says that the erasure was requested, so does the retention
-- that the tenant last had, or the grace, and the whole time between a warning and the erasure. Whoever was to be warned and was not went
-- too early, whenever it was; so did whoever went by a version that nobody knows, or whose tenant lets nothing go. Of terms that changed just then the shorter one counts.
-- A claimed subject went by the version that claimed it, when it did. What somebody else had deleted before was not Ebb's to keep. The
-- history of policies is asked only for versions of which the audit has no record. Index: audit_pkey, audit_at, audit_version,
-- audit_override, audit_claim, audit_deletion; read only.
WITH erasure AS MATERIALIZED (
    SELECT a.id, a.policy, a.details ->> 'tenant' AS tenant, a.details ->> 'deletion' AS deletion,
           ebb.recorded_moment(a.details ->> 'soft_deleted_at') AS soft_deleted_at,
           (a.details ->> 'warned_at')::timestamptz AS warned_at,
           went.at AS erased_at,
           COALESCE(claim.version, a.policy_version) AS version,
           COALESCE(claim.at, went.at) AS decided_at,
           COALESCE(claim.id, a.id) AS decided_by,
           (a.details ->> 'expedited')::boolean IS TRUE
               -- The record's number is hidden from the planner, which would walk the primary key up to it for each.
               AND EXISTS (SELECT FROM ebb.audit r WHERE r.details ->> 'deletion' = a.details ->> 'deletion'
                           AND r.action IN ('erase_requested', 'replay') AND r.id + 0 < a.id) AS requested
    FROM ebb.audit a
    CROSS JOIN LATERAL (SELECT COALESCE((a.details ->> 'erased_at')::timestamptz, a.at) AS at) went
    LEFT JOIN LATERAL (
        SELECT c.id, c.policy_version AS version, (c.details ->> 'claimed_at')::timestamptz AS at FROM ebb.audit c
        WHERE c.action = 'claim' AND c.details ->> 'deletion' = a.details ->> 'deletion' AND c.policy = a.policy AND c.id < a.id
        ORDER BY c.id LIMIT 1) claim ON true
    WHERE a.action = 'erase' AND (a.id > $4 AND a.id <= $5 OR a.id = ANY ($6::int8[]))
      AND went.at BETWEEN $1 AND $2
      -- A record is made after the moment that it names, unless the clock was moved.
      AND a.at >= CASE WHEN ebb.now() = now() THEN $1::timestamptz ELSE '-infinity' END
      AND ($3::text IS NULL OR a.details ->> 'tenant' = $3)
      AND NOT (a.rows = 0 AND (a.details ->> 'already_gone')::boolean IS TRUE)
), version AS MATERIALIZED (
    SELECT e.policy, e.version, said.spec, COALESCE(said.spec ->> 'zone', 'UTC') AS zone, ebb.reported_term(said.spec ->> 'grace') AS grace,
           ebb.reported_term(said.spec ->> 'floor') AS floor, COALESCE((said.spec ->> 'tenant_override')::boolean, false) AS overrides,
           said.spec ? 'warn_before' AND COALESCE(said.spec ->> 'on_undeliverable', 'stop') = 'stop' AS warns
    FROM (SELECT DISTINCT policy, version FROM erasure) e
    LEFT JOIN LATERAL (
        SELECT p.details -> 'spec' AS spec FROM ebb.audit p
        WHERE p.action = 'policy' AND p.policy = e.policy AND p.policy_version = e.version AND p.details ->> 'kind' = 'retain'
        ORDER BY p.id LIMIT 1) sealed ON true
    LEFT JOIN ebb.policy_history h ON h.kind = 'retain' AND h.name = e.policy AND h.version = e.version
    CROSS JOIN LATERAL (SELECT COALESCE(sealed.spec, h.spec) AS spec) said
), told AS MATERIALIZED (
    -- Any time between warning and erasure that a policy ever had.
    SELECT p.policy, ebb.reported_term(p.details -> 'spec' -> 'warn_before' ->> 0) AS before FROM ebb.audit p
    WHERE p.action = 'policy' AND p.details ->> 'kind' = 'retain' AND p.details -> 'spec' ? 'warn_before'
    UNION
    SELECT v.policy, ebb.reported_term(v.spec -> 'warn_before' ->> 0) FROM version v WHERE v.warns
)
SELECT e.id AS record, e.policy, e.deletion::uuid AS deletion, COALESCE(e.soft_deleted_at, '-infinity') AS soft_deleted_at, e.erased_at,
       COALESCE(over.not_before, 'infinity') AS not_before
FROM erasure e
LEFT JOIN version v ON v.policy = e.policy AND v.version = e.version
-- The tenant's own, as it was set last before the subject went, and as the version by which it went knew it.
LEFT JOIN LATERAL (
    SELECT ebb.reported_term(o.details ->> 'retention') AS term, (o.details ->> 'enabled')::boolean IS FALSE AS off FROM ebb.audit o
    WHERE v.overrides AND o.action = 'override' AND o.policy = e.policy AND o.details ->> 'tenant' = e.tenant AND o.id < e.decided_by
    ORDER BY o.id DESC LIMIT 1) last ON true
LEFT JOIN LATERAL (
    SELECT ebb.reported_term(o.details ->> 'retention') AS term, (o.details ->> 'enabled')::boolean IS FALSE AS off FROM ebb.audit o
    WHERE v.overrides AND o.action = 'override' AND o.policy = e.policy AND o.details ->> 'tenant' = e.tenant
      AND o.policy_version <= e.version
    ORDER BY o.id DESC LIMIT 1) known ON true
CROSS JOIN LATERAL (SELECT COALESCE(last.term, v.grace) AS last, COALESCE(known.term, v.grace) AS known) term
CROSS JOIN LATERAL (
    SELECT CASE WHEN last.off AND known.off THEN 'infinity'
                WHEN v.spec IS NOT NULL AND e.soft_deleted_at IS NOT NULL AND (e.requested OR v.grace IS NOT NULL AND (e.warned_at IS NOT NULL OR NOT v.warns)) THEN
               GREATEST(
                   e.soft_deleted_at,
                   e.warned_at,
                   CASE WHEN v.floor IS NOT NULL THEN ebb.reported_after(e.soft_deleted_at, v.floor, v.zone) END,
                   CASE WHEN NOT e.requested THEN
                       LEAST(ebb.reported_after(e.soft_deleted_at, term.last, v.zone),
                             CASE WHEN term.known <> term.last THEN ebb.reported_after(e.soft_deleted_at, term.known, v.zone) END)
                   END,
                   -- Of all that the tenant or anybody was ever told the first to end counts.
                   CASE WHEN NOT e.requested AND e.warned_at IS NOT NULL THEN
                       (SELECT min(ebb.reported_after(e.warned_at, ever.before, v.zone))
                        FROM (SELECT t.before FROM told t WHERE t.policy = e.policy
                              UNION ALL
                              SELECT ebb.reported_term(o.details -> 'warn_before' ->> 0) FROM ebb.audit o
                              WHERE o.action = 'override' AND o.policy = e.policy AND o.details ->> 'tenant' = e.tenant) AS ever (before))
                   END)
           END AS not_before
) over
WHERE e.decided_at < COALESCE(over.not_before, 'infinity')
ORDER BY e.id
