-- A role ($1) and what it may do everywhere. Expects pg_roles; read only.
SELECT r.rolname AS name,
       r.rolsuper AS superuser,
       r.rolsuper OR r.rolbypassrls AS bypasses_rls,
       pg_has_role(r.oid, 'pg_read_all_stats', 'USAGE') AS reads_all_stats,
       has_database_privilege(r.oid, current_database(), 'TEMP') AS may_create_temp,
       EXISTS (SELECT FROM pg_roles WHERE rolname = 'ebb_node') AS has_ebb_node,
       EXISTS (SELECT FROM pg_roles WHERE rolname = 'ebb_owner') AS has_ebb_owner,
       EXISTS (SELECT FROM pg_roles n WHERE n.rolname = 'ebb_node' AND pg_has_role(r.oid, n.oid, 'USAGE')) AS is_ebb_node,
       COALESCE((SELECT pg_has_role(r.oid, n.nspowner, 'USAGE') FROM pg_namespace n WHERE n.nspname = 'ebb'), false) AS owns_schema,
       current_database()::text AS database,
       current_setting('server_version_num')::int AS server_version
FROM pg_roles r
WHERE r.rolname = $1
