-- Opens deletions of a policy ($1) for subjects ($2) that the application soft-deleted at $3, of tenants $4, whose status was $5; those
-- that are open stay. Index: deletion_open, unique. Lock: none that others wait for. Returns what was opened. Ids are made in the order of
-- time (version 7): what was deleted together is next to each other in every index, and goes together.
INSERT INTO ebb.deletion (id, policy, subject_id, tenant, deleted_at, due_at, opened_by, former)
SELECT (lpad(to_hex((extract(epoch FROM clock_timestamp()) * 1000)::bigint), 12, '0') || '7'
        || substr(replace(gen_random_uuid()::text, '-', ''), 14))::uuid,
       r.policy, s.id, s.tenant, s.deleted_at,
       CASE WHEN o.enabled IS FALSE THEN 'infinity'::timestamptz
            ELSE GREATEST(ebb.later(s.deleted_at, r.floor, r.zone),
                          ebb.later(s.deleted_at, COALESCE(o.retention, r.grace), r.zone)) END,
       'application', s.former::jsonb
FROM unnest($2::text[], $3::timestamptz[], $4::text[], $5::text[]) WITH ORDINALITY AS s (id, deleted_at, tenant, former, at)
JOIN ebb.retain r ON r.policy = $1
LEFT JOIN ebb.tenant_override o ON o.policy = r.policy AND o.tenant = s.tenant AND r.tenant_override
ORDER BY s.at
ON CONFLICT (policy, subject_id) WHERE state IN ('pending', 'warned', 'erasing', 'failed') DO NOTHING
RETURNING id, subject_id, due_at
