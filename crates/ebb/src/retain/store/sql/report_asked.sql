-- How often each thing was asked for about subjects from $1 to $2, of a tenant ($3) or of all, among the records after $4 up to $5: a
-- record is about one of them, or about as many as it has rows. What was noticed for several at once says of no tenant how many, and is
-- left out where one is asked for. Index: audit_pkey, deletion_pkey; read only.
SELECT a.action, sum(GREATEST(a.rows, 1))::int8 FROM ebb.audit a
WHERE a.action IN ('delete', 'mark', 'restore', 'hold', 'release', 'erase_requested', 'replay', 'retry', 'override', 'floor')
  AND a.id > $4 AND a.id <= $5 AND a.at BETWEEN $1 AND $2
  AND ($3::text IS NULL OR a.details ->> 'tenant' = $3
       OR EXISTS (SELECT FROM ebb.deletion d WHERE d.id = (a.details ->> 'deletion')::uuid AND d.tenant = $3))
GROUP BY a.action
