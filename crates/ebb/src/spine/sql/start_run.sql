-- Opens a run: $1 unit, $2 chore, $3 policy, $4 version, $5 leaf, $6 node, $7 generation. Expects run_unit for the
-- runs that a dead node left behind, which end here as abandoned with what they had committed.
WITH left_behind AS (
    UPDATE ebb.run SET status = 'abandoned', finished_at = clock_timestamp()
    WHERE unit = $1 AND status = 'running'
)
INSERT INTO ebb.run (unit, chore, policy, policy_version, leaf, node, generation)
VALUES ($1, $2, $3, $4, $5, $6, $7)
RETURNING id
