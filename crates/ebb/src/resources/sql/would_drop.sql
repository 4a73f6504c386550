-- What a pass would condemn or drop now, for mode = "observe": $1 policy, $2 grace. Expects resource_used,
-- resource_condemned and resource_dropping; read only.
SELECT count(*)
FROM ebb.resource r
WHERE r.policy = $1
  AND (r.state IN ('creating', 'live') OR (r.state = 'condemned' AND r.condemned_at <= ebb.now() - $2::interval)
       OR r.state IN ('dropping', 'blocked'))
  AND NOT EXISTS (SELECT FROM ebb.reference f WHERE f.resource = r.id)
