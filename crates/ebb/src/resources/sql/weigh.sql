-- What a pass would claim for dropping now, and how much there is, for the brake: $1 policy, $2 grace. What is claimed already
-- was weighed before. Expects resource_used, resource_condemned and reference_pkey; read only.
SELECT count(*) FILTER (WHERE r.state IN ('creating', 'live', 'condemned')
                        AND (CASE r.state WHEN 'condemned' THEN r.condemned_at ELSE ebb.now() END) <= ebb.now() - $2::interval
                        AND NOT EXISTS (SELECT FROM ebb.reference f WHERE f.resource = r.id)),
       count(*)
FROM ebb.resource r
WHERE r.policy = $1 AND r.state IN ('creating', 'live', 'condemned')
