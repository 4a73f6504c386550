-- Counts one batch in its own transaction: $1 run, $2 rows, $3 cutoff, $4 shape. Says, as the last that it asks, whether the policy ($6) still
-- has the version that the run began with ($5; 0 for units without one): whoever changes it comes before this transaction, which then
-- comes to nothing, or after it; and whether no column that it goes by has the name of another, as one may have got it until the batch
-- locked its table. Expects run_pkey, policy_name, anchor_pkey and pg_attribute_relid_attnam_index. Lock: the policy's row FOR SHARE; one
-- that somebody is changing is not waited for, because that may be waiting for this batch.
WITH counted AS (
    UPDATE ebb.run SET rows = rows + $2, batches = batches + 1, cutoff = $3, shape = $4 WHERE id = $1
), still AS MATERIALIZED (
    SELECT kind, name FROM ebb.policy
    WHERE name = $6 AND version = $5 AND kind IN ('expire', 'retain', 'partition', 'resources', 'schedule')
    FOR SHARE SKIP LOCKED
)
SELECT $5 = 0 OR EXISTS (SELECT FROM still WHERE NOT ebb.columns_moved(kind, name))
