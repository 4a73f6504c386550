-- What was set for tenants of a policy ($1), by the version that it made. Index: audit_policy; read only.
SELECT a.policy_version, a.details FROM ebb.audit a
WHERE a.policy = $1 AND a.action = 'override' AND a.policy_version IS NOT NULL
