-- Notes what nobody knows: $1 policy, $2 names, $3 store ids, $4 modification times, $5 sizes. What has changed since it
-- was seen first counts as seen first now. Expects sighting_pkey; locks the rows.
INSERT INTO ebb.sighting AS s (policy, name, store_id, modified_at, size, first_seen, last_seen)
SELECT $1, t.name, t.store_id, t.modified_at, t.size, ebb.now(), ebb.now()
FROM unnest($2::text[], $3::text[], $4::timestamptz[], $5::int8[]) AS t (name, store_id, modified_at, size)
ON CONFLICT (policy, name) DO UPDATE
SET first_seen = CASE WHEN s.store_id IS NOT DISTINCT FROM EXCLUDED.store_id
                       AND s.modified_at IS NOT DISTINCT FROM EXCLUDED.modified_at
                      THEN s.first_seen ELSE EXCLUDED.first_seen END,
    last_seen = EXCLUDED.last_seen, store_id = EXCLUDED.store_id, modified_at = EXCLUDED.modified_at, size = EXCLUDED.size
