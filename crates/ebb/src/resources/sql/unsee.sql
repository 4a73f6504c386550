-- Forgets what this sweep of a policy ($1) did not see: it is gone, known by now, or the listing was short; either way
-- it has to be seen twice again. Expects sighting_pkey.
DELETE FROM ebb.sighting WHERE policy = $1 AND last_seen < ebb.now()
