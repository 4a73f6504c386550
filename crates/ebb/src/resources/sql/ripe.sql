-- What was seen unchanged in two sweeps at least a grace ($2) apart; where the store tells no modification time, as long
-- as an orphan must be old ($3). $1 policy. Expects sighting_pkey; read only.
SELECT name, store_id, modified_at
FROM ebb.sighting
WHERE policy = $1 AND first_seen < last_seen
  AND first_seen <= ebb.now() - CASE WHEN modified_at IS NULL THEN GREATEST($2::interval, $3::interval) ELSE $2::interval END
ORDER BY name
