-- Stores a policy and its history together: $1 kind, $2 name, $3 spec, $4 enabled, $5 source, $6 by, $7 stopped.
-- The version only grows. Expects policy_pkey and policy_history_pkey.
WITH put AS (
    INSERT INTO ebb.policy AS p (kind, name, spec, enabled, source, changed_by, stopped)
    VALUES ($1, $2, $3, $4, $5, $6, $7)
    ON CONFLICT (kind, name) DO UPDATE
    SET spec = EXCLUDED.spec, enabled = EXCLUDED.enabled, source = EXCLUDED.source, changed_by = EXCLUDED.changed_by,
        stopped = EXCLUDED.stopped, changed_at = clock_timestamp(), version = p.version + 1
    RETURNING p.kind, p.name, p.version, p.spec, p.enabled, p.source, p.stopped, p.changed_at, p.changed_by
)
INSERT INTO ebb.policy_history (kind, name, version, spec, enabled, source, stopped, changed_at, changed_by)
SELECT kind, name, version, spec, enabled, source, stopped, changed_at, changed_by FROM put
RETURNING version
