-- Whether a role ($1) may SET ROLE to another ($2); null when that does not exist. Read only.
SELECT (SELECT pg_has_role($1, r.oid, 'MEMBER') FROM pg_roles r WHERE r.rolname = $2)
