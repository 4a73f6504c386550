-- Every policy as it is stored, and who gave it its keys where that was at runtime. Expects policy_pkey, policy_history_pkey; read only.
SELECT p.kind, p.name, p.spec, p.enabled, p.version, p.source, p.stopped, p.changed_at, p.changed_by,
       CASE WHEN p.source = 'runtime' THEN
           (SELECT h.changed_by FROM ebb.policy_history h
            WHERE h.kind = p.kind AND h.name = p.name AND h.source = 'runtime' AND h.spec = p.spec AND h.stopped IS NULL
            ORDER BY h.version LIMIT 1) END AS written_by
FROM ebb.policy p
ORDER BY p.kind, p.name
