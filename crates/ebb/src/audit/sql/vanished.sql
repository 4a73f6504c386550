-- Records that wait for a seal and are gone: deleted before any block had them.
-- Index: audit_pkey; the list of those that wait is short. Lock: none.
SELECT p.record
FROM ebb.audit_pending AS p
WHERE NOT EXISTS (SELECT FROM ebb.audit AS a WHERE a.id = p.record)
ORDER BY p.record
LIMIT 1000
