-- The first statement of whatever is done under a lease ($1 unit, $2 holder, $3 generation): no row, nothing is done.
-- Says, too, whether the policy ($5) still has the version that the run began with ($4; 0 for units
-- without one) and, where that has begun ($6), no column that it goes by has the name of another by now. Expects lease_pkey, policy_name, anchor_pkey and
-- pg_attribute_relid_attnam_index. FOR KEY SHARE lets heartbeats through and makes a takeover pass by until this transaction has ended.
SELECT pg_backend_pid(), current_setting('application_name'),
       $4 = 0 OR EXISTS (
           SELECT FROM ebb.policy p
           WHERE p.name = $5 AND p.version = $4 AND p.kind IN ('expire', 'retain', 'partition', 'resources', 'schedule')
             AND NOT ($6 AND ebb.columns_moved(p.kind, p.name)))
FROM ebb.lease
WHERE unit = $1 AND holder = $2 AND generation = $3
FOR KEY SHARE OF lease
