-- Whether VACUUM of a leaf ($1) would do anything but warn: owner, superuser, owner of the database, or MAINTAIN
-- (from 17 on). Read only.
SELECT pg_has_role(c.relowner, 'USAGE')
    OR (SELECT rolsuper FROM pg_roles WHERE rolname = current_user)
    OR EXISTS (SELECT FROM pg_database d WHERE d.datname = current_database() AND pg_has_role(d.datdba, 'USAGE'))
    OR EXISTS (SELECT FROM aclexplode(c.relacl) a
               WHERE a.privilege_type = 'MAINTAIN' AND (a.grantee = 0 OR pg_has_role(a.grantee, 'USAGE')))
FROM pg_class c
WHERE c.oid = $1::int8::oid
