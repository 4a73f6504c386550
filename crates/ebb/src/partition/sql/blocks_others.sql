-- Whether somebody has waited behind a session ($1), for a relation that it has locked or waits for, for so many ms ($2).
-- Read only.
SELECT EXISTS (SELECT FROM pg_catalog.pg_locks l
               WHERE l.locktype = 'relation' AND NOT l.granted AND l.pid <> $1
                 AND pg_catalog.clock_timestamp() - l.waitstart >= $2::int8 * interval '1 ms'
                 AND $1 = ANY (pg_catalog.pg_blocking_pids(l.pid)))
