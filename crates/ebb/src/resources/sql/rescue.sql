-- Brings those of the locked resources ($1) back to life that somebody refers to. Expects resource_pkey and
-- reference_pkey; the rows are locked FOR UPDATE by the statement before.
UPDATE ebb.resource r
SET state = 'live', condemned_at = NULL
WHERE r.id = ANY ($1) AND r.state = 'condemned'
  AND EXISTS (SELECT FROM ebb.reference f WHERE f.resource = r.id)
