-- What a link's page says of one deletion ($1): how it stands and its dates, nothing that names anybody. Index: deletion_pkey;
-- read only.
SELECT v.state, v.deleted_at, v.due_at, ebb.now() AS now, r.zone, COALESCE(p.spec -> 'texts', '{}') || COALESCE(o.spec -> 'texts', '{}') AS texts
FROM ebb.v_deletions v
LEFT JOIN ebb.retain r ON r.policy = v.policy
LEFT JOIN ebb.tenant_override o ON o.policy = r.policy AND o.tenant = v.tenant AND r.tenant_override
LEFT JOIN ebb.policy p ON p.kind = 'retain' AND p.name = v.policy
WHERE v.deletion = $1
