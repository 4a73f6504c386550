-- Why floors went down by changes of a policy ($1), with the version that each made: the records of one transaction. Index: audit_floor,
-- audit_version; read only.
SELECT p.policy_version, string_agg(DISTINCT f.details ->> 'reason', '; ')
FROM ebb.audit f
JOIN ebb.audit p ON p.action = 'policy' AND p.policy = f.policy AND p.xid = f.xid
WHERE f.action = 'floor' AND f.policy = $1 AND f.details ->> 'reason' IS NOT NULL AND p.policy_version IS NOT NULL
GROUP BY p.policy_version
