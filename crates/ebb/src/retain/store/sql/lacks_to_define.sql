-- The roles without whose rights the current user cannot make a function ($1) of the ebb schema anew; none where it can.
-- Index: pg_proc_proname_args_nsp_index. Read only.
SELECT pg_catalog.pg_get_userbyid(n.nspowner)::text
FROM pg_catalog.pg_namespace n
WHERE n.nspname = 'ebb' AND NOT pg_catalog.has_schema_privilege(n.oid, 'CREATE')
UNION
SELECT pg_catalog.pg_get_userbyid(p.proowner)::text
FROM pg_catalog.pg_proc p
JOIN pg_catalog.pg_namespace n ON n.oid = p.pronamespace AND n.nspname = 'ebb'
WHERE p.proname = $1 AND NOT pg_catalog.pg_has_role(p.proowner, 'USAGE')
ORDER BY 1
