-- The first statement of whatever is done under a lease ($1 unit, $2 holder, $3 generation): no row, nothing is done.
-- Says, too, whether the policy ($5) still has the version that the run began with ($4; 0 for units
-- without one). Expects lease_pkey and policy_name. FOR KEY SHARE lets heartbeats through and makes a takeover pass by
-- until this transaction has ended.
SELECT pg_backend_pid(), current_setting('application_name'),
       $4 = 0 OR EXISTS (SELECT FROM ebb.policy WHERE name = $5 AND version = $4
                          AND kind IN ('expire', 'retain', 'partition', 'resources', 'schedule'))
FROM ebb.lease
WHERE unit = $1 AND holder = $2 AND generation = $3
FOR KEY SHARE OF lease
