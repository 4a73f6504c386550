-- Whether the session is a member of the role that owns the ebb schema. Read only.
SELECT pg_catalog.pg_has_role(session_user, n.nspowner, 'MEMBER') FROM pg_catalog.pg_namespace n WHERE n.nspname = 'ebb'
