-- How far the index is that a server process ($1) builds, from 0 to 1, and in which phase; whom it waits for. Read only.
SELECT CASE WHEN p.blocks_total > 0 THEN p.blocks_done::float8 / p.blocks_total
            WHEN p.tuples_total > 0 THEN p.tuples_done::float8 / p.tuples_total
            WHEN p.lockers_total > 0 THEN p.lockers_done::float8 / p.lockers_total ELSE 0 END AS share,
       p.phase || CASE WHEN p.current_locker_pid > 0 THEN ', behind pid ' || p.current_locker_pid
           || COALESCE((SELECT ': ' || left(a.query, 60) FROM pg_catalog.pg_stat_activity a WHERE a.pid = p.current_locker_pid), '') ELSE '' END AS phase
FROM pg_catalog.pg_stat_progress_create_index p
WHERE p.pid = $1
