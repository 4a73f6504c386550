-- Rights on a table ($1) that somebody gave who is not its owner, and for whom whoever asks may not act; and those on the
-- sequences of its columns, which the owner gives again: right, of whom, by whom. Read only.
SELECT CASE WHEN x.kind = 'S' THEN pg_catalog.format('%s on sequence %s', acl.privilege_type, x.name)
            ELSE acl.privilege_type || COALESCE(' (' || pg_catalog.quote_ident(x.name) || ')', '') END AS what,
       CASE acl.grantee WHEN 0 THEN 'everybody' ELSE pg_catalog.pg_get_userbyid(acl.grantee)::text END AS whose,
       pg_catalog.pg_get_userbyid(acl.grantor)::text AS giver
FROM (SELECT 'r' AS kind, NULL::text AS name, c.relacl AS acl, c.relowner, c.relnamespace FROM pg_catalog.pg_class c WHERE c.oid = $1::int8::oid
      UNION ALL
      SELECT 'r', a.attname::text, a.attacl, c.relowner, c.relnamespace FROM pg_catalog.pg_class c
      JOIN pg_catalog.pg_attribute a ON a.attrelid = c.oid AND NOT a.attisdropped WHERE c.oid = $1::int8::oid
      UNION ALL
      SELECT 'S', s.relname::text, s.relacl, s.relowner, s.relnamespace FROM pg_catalog.pg_depend d
      JOIN pg_catalog.pg_class s ON s.oid = d.objid AND s.relkind = 'S'
      WHERE d.refobjid = $1::int8::oid AND d.classid = 'pg_class'::regclass AND d.deptype IN ('a', 'i')) x,
     aclexplode(x.acl) acl
WHERE acl.grantor <> x.relowner
  AND (x.kind = 'S' OR NOT pg_catalog.has_schema_privilege(acl.grantor, x.relnamespace, 'USAGE')
       OR NOT pg_catalog.pg_has_role(session_user, acl.grantor,
                 CASE WHEN current_setting('server_version_num')::int >= 160000 THEN 'SET' ELSE 'MEMBER' END))
ORDER BY 1, 2
