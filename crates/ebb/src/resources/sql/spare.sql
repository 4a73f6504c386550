-- An orphan that changed after it was claimed ($1 ids) is somebody's: the claim goes, and so does what was seen.
-- Expects resource_pkey and sighting_pkey; locks the rows.
WITH spared AS (
    DELETE FROM ebb.resource r WHERE r.id = ANY ($1) AND r.orphan AND r.state IN ('dropping', 'blocked')
    RETURNING r.policy, r.name
), unseen AS (
    DELETE FROM ebb.sighting s USING spared WHERE s.policy = spared.policy AND s.name = spared.name
)
SELECT name FROM spared
