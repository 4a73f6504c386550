-- Looks again, under the locks, at deletions ($1) whose subjects' rows say these soft deletes ($2) and tenants ($3):
-- when each may be erased by today's policy and by what its warning promised, whether it is on hold, and why it counts
-- as unwarned. The ids are named twice: joined alone, the index would be walked from its beginning, past whoever is gone.
-- Index: deletion_pkey, warning_pkey, hold_active. Read only.
SELECT d.id, d.state, d.deleted_at, d.expedited, s.tenant AS tenant_now,
       GREATEST(CASE WHEN o.enabled IS FALSE THEN 'infinity'::timestamptz
                     ELSE GREATEST(ebb.later(GREATEST(d.deleted_at, s.deleted_at), r.floor, r.zone),
                                   CASE WHEN NOT d.expedited THEN
                                       ebb.later(GREATEST(d.deleted_at, s.deleted_at), COALESCE(o.retention, r.grace), r.zone)
                                   END) END,
                d.not_before,
                CASE WHEN NOT d.expedited THEN ebb.later(w.accepted_at, w.before, r.zone) END) AS due_at,
       h.reason AS held, d.parts, d.unlinked, CASE WHEN here.yes THEN d.writers ELSE '{}' END AS whole, CASE WHEN here.yes THEN d.partly ELSE '{}' END AS partly, w.accepted_at AS warned_at,
       CASE WHEN d.expedited OR r.warn_before = '{}' OR w.accepted_at IS NOT NULL THEN NULL
            WHEN w.deletion IS NULL THEN 'not warned yet'
            WHEN w.failed_at IS NULL THEN 'its warning is on the way'
            WHEN NOT r.proceed THEN 'its warning could not be delivered' END AS unwarned,
       ebb.now() AS now
FROM unnest($1::uuid[], $2::timestamptz[], $3::text[]) AS s (id, deleted_at, tenant)
JOIN ebb.deletion d ON d.id = s.id
CROSS JOIN LATERAL (SELECT d.written_in = (SELECT ebb.home()) AS yes) here
JOIN ebb.retain r ON r.policy = d.policy
LEFT JOIN ebb.tenant_override o ON o.policy = r.policy AND o.tenant = s.tenant AND r.tenant_override
LEFT JOIN ebb.warning w ON w.deletion = d.id AND w.step = 0
LEFT JOIN ebb.hold h ON h.policy = d.policy AND h.subject_id = d.subject_id AND h.lifted_at IS NULL
                    AND (h.until IS NULL OR h.until > ebb.now())
WHERE d.id = ANY ($1)
