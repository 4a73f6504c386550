-- Whether whoever asks may send a file to the disk: pg_file_sync of the extension adminpack, which is there up to 16. Read only.
SELECT EXISTS (SELECT FROM pg_catalog.pg_proc p
               WHERE p.proname = 'pg_file_sync' AND p.pronamespace = 'pg_catalog'::regnamespace AND pg_catalog.has_function_privilege(p.oid, 'EXECUTE'))
