-- Rows that the audit says were removed ($1: the policy). Expects audit_policy; read only.
SELECT coalesce(sum(rows), 0)::int8 FROM ebb.audit WHERE policy = $1 AND action = 'expire'
