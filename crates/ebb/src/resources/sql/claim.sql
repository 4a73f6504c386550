-- Claims those of the locked resources ($1) that nobody refers to and whose grace ($2) is over: from here on an incref is
-- told that they are gone. Expects resource_pkey and reference_pkey; the rows are locked FOR UPDATE by an earlier statement.
UPDATE ebb.resource r
SET state = 'dropping', dropping_at = ebb.clock(), retry_at = '-infinity'
WHERE r.id = ANY ($1) AND r.state = 'condemned' AND r.condemned_at <= ebb.now() - $2::interval
  AND NOT EXISTS (SELECT FROM ebb.reference f WHERE f.resource = r.id)
