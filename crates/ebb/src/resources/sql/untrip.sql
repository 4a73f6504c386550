-- The breaker of a policy ($1) no longer stands, or what was allowed is used up; the dropper's brake has other words and
-- stays. Expects brake_pkey; locks the row.
DELETE FROM ebb.brake WHERE policy = $1 AND allowed_before LIKE '%(max_orphans)'
