-- Sandboxes that a policy ($1 its part of their names) had for earlier conditions: all but the current one ($2). Read only.
SELECT p.oid::regprocedure::text
FROM pg_proc p
JOIN pg_namespace n ON n.oid = p.pronamespace
WHERE n.nspname = 'ebb_sandbox' AND p.proname <> $2
  AND left(p.proname, length($1) + 1) = $1 || '_' AND substr(p.proname, length($1) + 2) ~ '^[0-9a-f]{12}$'
ORDER BY 1
