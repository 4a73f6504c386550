-- Condemns those of the locked resources ($1) that nobody refers to. Expects resource_pkey and reference_pkey; the rows
-- are locked FOR UPDATE by the statement before.
UPDATE ebb.resource r
SET state = 'condemned', condemned_at = ebb.clock()
WHERE r.id = ANY ($1) AND r.state IN ('creating', 'live')
  AND NOT EXISTS (SELECT FROM ebb.reference f WHERE f.resource = r.id)
