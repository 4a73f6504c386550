-- Every policy with its state, why, and what ends it; of a schedule also when its next event is due. Expects policy_pkey and
-- recurring_policy; read only.
SELECT kind, name, state, reason, remedy, version, changed_at, changed_by, spec,
       (SELECT r.next_at FROM ebb.recurring r WHERE r.policy = name AND kind = 'schedule') AS next_event
FROM ebb.v_policies
ORDER BY kind, name
