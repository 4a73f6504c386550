-- What an expression over a table ($1) would call (functions $2, those behind operators $3) that belongs to somebody who has no say over
-- the table, in a schema where others may create: its name, and whose it is. Index: the oid indexes of the catalogs. Read only.
WITH called AS (
    SELECT pg_catalog.unnest($2::int8[])::oid AS oid
    UNION SELECT o.oprcode::oid FROM pg_catalog.pg_operator o WHERE o.oid::int8 = ANY($3)
)
SELECT p.oid::pg_catalog.regprocedure::text, pg_catalog.pg_get_userbyid(p.proowner)::text
FROM pg_catalog.pg_proc p
JOIN called USING (oid)
JOIN pg_catalog.pg_namespace n ON n.oid = p.pronamespace AND n.nspname <> 'pg_catalog'
JOIN pg_catalog.pg_class c ON c.oid = $1::pg_catalog.regclass
JOIN pg_catalog.pg_roles o ON o.oid = p.proowner
WHERE NOT o.rolsuper AND p.proowner NOT IN (n.nspowner, c.relowner) AND o.rolname <> current_user
  AND NOT EXISTS (SELECT FROM pg_catalog.pg_auth_members m WHERE m.roleid = p.proowner AND m.member = c.relowner)
  AND EXISTS (SELECT FROM pg_catalog.aclexplode(COALESCE(n.nspacl, pg_catalog.acldefault('n', n.nspowner))) AS a
              WHERE a.privilege_type = 'CREATE' AND a.grantee NOT IN (n.nspowner, c.relowner))
ORDER BY 1 LIMIT 1
