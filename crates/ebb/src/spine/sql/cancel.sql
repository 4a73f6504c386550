-- Cancels what a batch is at ($1 the server process, $2 what the batch's transaction calls itself). Behind a pooler the process may serve
-- somebody else by now, who calls himself otherwise. Lock: none.
SELECT pg_cancel_backend(a.pid) FROM pg_catalog.pg_stat_activity a WHERE a.pid = $1 AND a.application_name = $2
