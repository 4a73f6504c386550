-- The sequences that belong to columns of a table ($1): of serial columns (auto) and of identity columns; and what else uses them.
-- Read only.
SELECT n.nspname::text AS schema_name, s.relname::text AS name, a.attname::text AS column_name, a.attidentity::text AS identity,
       q.seqstart AS start, q.seqincrement AS increment, q.seqmin AS minimum, q.seqmax AS maximum, q.seqcache AS cache, q.seqcycle AS cycle,
       ARRAY(SELECT pg_catalog.format('GRANT %s ON SEQUENCE %I.%I TO %s%s', acl.privilege_type, n.nspname, s.relname,
                    CASE acl.grantee WHEN 0 THEN 'PUBLIC' ELSE quote_ident(pg_catalog.pg_get_userbyid(acl.grantee)) END,
                    CASE WHEN acl.is_grantable THEN ' WITH GRANT OPTION' ELSE '' END)
             FROM aclexplode(s.relacl) acl WHERE acl.grantee <> s.relowner) AS grants,
       ARRAY(SELECT DISTINCT pg_catalog.pg_describe_object(u.classid, u.objid, 0) FROM pg_catalog.pg_depend u
             WHERE u.refclassid = 'pg_class'::regclass AND u.refobjid = s.oid AND u.deptype = 'n' ORDER BY 1) AS users,
       pg_catalog.obj_description(s.oid, 'pg_class') AS comment
FROM pg_catalog.pg_depend d
JOIN pg_catalog.pg_class s ON s.oid = d.objid AND s.relkind = 'S'
JOIN pg_catalog.pg_namespace n ON n.oid = s.relnamespace
JOIN pg_catalog.pg_sequence q ON q.seqrelid = s.oid
JOIN pg_catalog.pg_attribute a ON a.attrelid = d.refobjid AND a.attnum = d.refobjsubid
WHERE d.refobjid = $1::int8::oid AND d.classid = 'pg_class'::regclass AND d.deptype IN ('a', 'i')
ORDER BY s.relname
