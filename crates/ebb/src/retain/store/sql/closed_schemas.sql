-- Of the schema of a table ($1) and public, those in which nobody may create anything but whom the schema or the table belongs to: the
-- table's own first. Index: pg_class_oid_index. Read only.
SELECT n.nspname::text
FROM pg_catalog.pg_class c
JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace OR n.nspname = 'public'
WHERE c.oid = $1::int8::oid
  AND NOT EXISTS (SELECT FROM aclexplode(COALESCE(n.nspacl, acldefault('n', n.nspowner))) AS a
                  LEFT JOIN pg_catalog.pg_roles r ON r.oid = a.grantee
                  WHERE a.privilege_type = 'CREATE' AND a.grantee NOT IN (n.nspowner, c.relowner) AND r.rolsuper IS NOT TRUE)
ORDER BY n.oid <> c.relnamespace
