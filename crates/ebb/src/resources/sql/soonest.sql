-- When the next grace of a policy ($1) ends, or the next try is due; $2 the grace. Expects resource_condemned and
-- resource_dropping; read only.
SELECT LEAST(
    (SELECT min(condemned_at) + $2::interval FROM ebb.resource WHERE policy = $1 AND state = 'condemned'),
    (SELECT min(retry_at) FROM ebb.resource WHERE policy = $1 AND state IN ('dropping', 'blocked')))
