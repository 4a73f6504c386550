-- Orphans that were seen and are not claimed yet: $1 policy, $2 how many. Expects sighting_pkey; read only.
SELECT name, store_id, modified_at, first_seen, last_seen, size FROM ebb.sighting WHERE policy = $1 ORDER BY name LIMIT $2
