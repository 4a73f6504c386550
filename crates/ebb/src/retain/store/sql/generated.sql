-- What a function of the ebb schema ($1) does, as it is installed. Index: pg_proc_proname_args_nsp_index. Read only.
SELECT p.prosrc
FROM pg_catalog.pg_proc p
JOIN pg_catalog.pg_namespace n ON n.oid = p.pronamespace AND n.nspname = 'ebb'
WHERE p.proname = $1
