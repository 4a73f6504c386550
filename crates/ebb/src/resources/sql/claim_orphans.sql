-- Claims the names of orphans with a tombstone, so that nobody can announce them any more: $1 policy, $2 names, $3 store
-- ids, $4 modification times. What was announced meanwhile is not claimed. Expects resource_name; locks the rows.
INSERT INTO ebb.resource AS r (policy, name, state, orphan, store_id, seen_modified, dropping_at)
SELECT $1, t.name, 'dropping', true, t.store_id, t.modified_at, ebb.clock()
FROM unnest($2::text[], $3::text[], $4::timestamptz[]) AS t (name, store_id, modified_at)
ORDER BY t.name
ON CONFLICT (policy, name) DO UPDATE
SET state = 'dropping', orphan = true, store_id = EXCLUDED.store_id, seen_modified = EXCLUDED.seen_modified,
    dropping_at = EXCLUDED.dropping_at, retry_at = '-infinity', problem = NULL
WHERE r.state = 'dropped'
RETURNING r.name
