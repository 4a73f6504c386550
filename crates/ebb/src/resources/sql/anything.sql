-- Whether a pass of the dropper would find anything: $1 policy, $2 grace. Expects resource_used, resource_condemned,
-- resource_dropping and reference_pkey; read only.
SELECT EXISTS (SELECT FROM ebb.resource r WHERE r.policy = $1 AND r.state IN ('creating', 'live')
               AND NOT EXISTS (SELECT FROM ebb.reference f WHERE f.resource = r.id))
    OR EXISTS (SELECT FROM ebb.resource r WHERE r.policy = $1 AND r.state = 'condemned'
               AND (r.condemned_at <= ebb.now() - $2::interval OR EXISTS (SELECT FROM ebb.reference f WHERE f.resource = r.id)))
    OR EXISTS (SELECT FROM ebb.resource r WHERE r.policy = $1 AND r.state IN ('dropping', 'blocked') AND r.retry_at <= ebb.now())
