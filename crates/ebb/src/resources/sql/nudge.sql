-- Wakes the dropper of a policy ($1) when this transaction commits.
SELECT ebb.resource_nudge($1)
