-- The schema of a table ($1) and public, the table's own first, each with those who may create there besides whom the schema or the
-- table belongs to, as GRANT names them. Index: pg_class_oid_index. Read only.
SELECT n.nspname::text,
       ARRAY(SELECT DISTINCT CASE a.grantee WHEN 0 THEN 'PUBLIC' ELSE quote_ident(pg_catalog.pg_get_userbyid(a.grantee)) END
             FROM aclexplode(COALESCE(n.nspacl, acldefault('n', n.nspowner))) AS a
             LEFT JOIN pg_catalog.pg_roles r ON r.oid = a.grantee
             WHERE a.privilege_type = 'CREATE' AND a.grantee NOT IN (n.nspowner, c.relowner) AND r.rolsuper IS NOT TRUE
             ORDER BY 1)
FROM pg_catalog.pg_class c
JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace OR n.nspname = 'public'
WHERE c.oid = $1::int8::oid
ORDER BY n.oid <> c.relnamespace
