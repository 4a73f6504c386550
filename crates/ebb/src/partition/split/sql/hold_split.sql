-- This session works on a table's split ($1), unless one that still lives does. A session is known by its process and
-- when that began: a killed client's ends by itself. When one of another role began
-- cannot be seen by everybody: its process counts then. Expects split_pkey; locks the row until the transaction ends.
UPDATE ebb.split a
SET holder_pid = pg_backend_pid(), changed_at = clock_timestamp(),
    holder_start = (SELECT s.backend_start FROM pg_catalog.pg_stat_activity s WHERE s.pid = pg_backend_pid())
WHERE a.relation = $1
  AND NOT EXISTS (SELECT FROM pg_catalog.pg_stat_activity s
                  WHERE s.pid = a.holder_pid AND COALESCE(s.backend_start = a.holder_start, s.usesysid IS NOT NULL AND s.datname = current_database())
                    AND s.pid <> pg_backend_pid())
