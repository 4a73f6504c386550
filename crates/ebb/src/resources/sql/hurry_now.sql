-- Ends the grace of a locked resource ($1) that nobody refers to. Expects resource_pkey and reference_pkey.
UPDATE ebb.resource r SET state = CASE r.state WHEN 'blocked' THEN 'dropping' WHEN 'dropping' THEN 'dropping' ELSE 'condemned' END,
    condemned_at = '-infinity', retry_at = '-infinity'
WHERE r.id = $1 AND r.state <> 'dropped' AND NOT EXISTS (SELECT FROM ebb.reference f WHERE f.resource = r.id)
