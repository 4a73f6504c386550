-- Whether somebody else is executing something on this server; who may not see others sees nobody. Read only.
SELECT EXISTS (SELECT FROM pg_catalog.pg_stat_activity
               WHERE state = 'active' AND backend_type = 'client backend' AND pid <> pg_backend_pid() AND application_name NOT LIKE 'ebb/%')
