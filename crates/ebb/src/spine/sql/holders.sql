-- Who holds which of these units at the moment. Expects lease_pkey; read only.
SELECT unit, node
FROM ebb.lease
WHERE unit = ANY($1) AND holder IS NOT NULL AND holder <> $2 AND expires_at > clock_timestamp()
ORDER BY unit
