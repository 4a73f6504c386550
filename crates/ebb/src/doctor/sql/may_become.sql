-- Whether a role ($1) may SET ROLE to another ($2); null when that does not exist. From 16 on a membership may come
-- without that right. Read only.
SELECT (SELECT pg_has_role($1, r.oid,
                           CASE WHEN current_setting('server_version_num')::int >= 160000 THEN 'SET' ELSE 'MEMBER' END)
        FROM pg_roles r WHERE r.rolname = $2)
