-- Every policy as it is stored. Expects policy_pkey; read only.
SELECT kind, name, spec, enabled, version, source, stopped, changed_at, changed_by
FROM ebb.policy
ORDER BY kind, name
