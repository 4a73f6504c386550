-- How many resources each policy has in each state, for gauges; tombstones are not counted. Expects resource_used,
-- resource_condemned and resource_dropping; read only.
SELECT policy, state, count(*) FROM ebb.resource WHERE state <> 'dropped' GROUP BY policy, state
