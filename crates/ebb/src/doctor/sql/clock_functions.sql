-- The bodies of the two clock functions, and how far they are from the server's own time. Expects pg_proc; read only.
SELECT (SELECT btrim(p.prosrc) FROM pg_proc p WHERE p.oid = 'ebb.now()'::regprocedure) AS now_body,
       (SELECT btrim(p.prosrc) FROM pg_proc p WHERE p.oid = 'ebb.clock()'::regprocedure) AS clock_body,
       extract(epoch FROM ebb.now() - now())::float8 AS ahead_s
