-- Every policy with its state, why, and what ends it. Expects policy_pkey; read only.
SELECT kind, name, state, reason, remedy, version, changed_at, changed_by, spec
FROM ebb.v_policies
ORDER BY kind, name
