-- The role that nodes run as, as far as can be told: that of a node at work in this database, else ebb_node where it may
-- use the schema, else whoever asks. Read only.
SELECT COALESCE(
    (SELECT a.usename::text FROM pg_stat_activity a
     WHERE a.datname = current_database() AND a.application_name LIKE 'ebb/%' AND a.application_name NOT LIKE 'ebb/cli%'
       AND a.usename IS NOT NULL
     ORDER BY a.backend_start LIMIT 1),
    (SELECT r.rolname::text FROM pg_roles r
     JOIN pg_namespace n ON n.nspname = 'ebb' AND has_schema_privilege(r.oid, n.oid, 'USAGE')
     WHERE r.rolname = 'ebb_node'),
    current_user::text)
