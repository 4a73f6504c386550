-- Open deletions ($1) as they are under their locks. Index: deletion_pkey. Lock: FOR UPDATE SKIP LOCKED, before their subjects' rows.
SELECT d.id, d.subject_id, d.due_at, d.former::text AS former
FROM ebb.deletion d
WHERE d.id = ANY ($1) AND d.state IN ('pending', 'warned', 'failed')
FOR UPDATE SKIP LOCKED
