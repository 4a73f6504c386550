-- Transactions that have written to ebb.event or ebb.recurring and not ended: they may have looked for sleepers before this
-- node was one. $1: only these, when not null. Read only.
SELECT DISTINCT l.virtualtransaction
FROM pg_locks l
WHERE l.locktype = 'relation' AND l.mode = 'RowExclusiveLock' AND l.relation IN ('ebb.event'::regclass, 'ebb.recurring'::regclass)
  AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
  AND l.pid IS DISTINCT FROM pg_backend_pid()
  AND ($1::text[] IS NULL OR l.virtualtransaction = ANY ($1))
