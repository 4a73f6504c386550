-- Writes down that a partition ($1 parent, $2 kind, $3 partition) is to leave its table under a policy ($4, kept $5, zone
-- $6), with the whole condition once more; who dies afterwards leaves a trace to go on from. Expects detached_pkey.
INSERT INTO ebb.detached (relid, policy, parent, relation, lower_bound, upper_bound)
SELECT b.oid, $4, $7, pg_catalog.format('%I.%I', b.schema_name, b.table_name), b.lower_bound, b.upper_bound
FROM ebb.partition_bounds($1::int8::oid, $2) b
WHERE b.oid = $3::int8::oid
  AND ebb.is_over(b.upper_bound AT TIME ZONE ebb.partition_zone($2, $6), $5::interval, $6)
ON CONFLICT (relid) DO UPDATE SET policy = EXCLUDED.policy, parent = EXCLUDED.parent, relation = EXCLUDED.relation, home = EXCLUDED.home,
    lower_bound = EXCLUDED.lower_bound, upper_bound = EXCLUDED.upper_bound, state = 'detaching', detached_at = NULL
