-- Every version of the policies of one name ($1), newest first. Expects policy_history_pkey; read only.
SELECT kind, name, spec, enabled, version, source, stopped, changed_at, changed_by
FROM ebb.policy_history
WHERE name = $1
ORDER BY kind, version DESC
