-- What a role ($1) may do with a relation ($2), and whether row-level security would hide rows from it. UPDATE on any one
-- column is enough to lock rows. Expects pg_class; read only.
SELECT has_schema_privilege($1, c.relnamespace, 'USAGE') AS schema_usage,
       has_table_privilege($1, c.oid, 'SELECT') AS may_select,
       has_table_privilege($1, c.oid, 'DELETE') AS may_delete,
       has_any_column_privilege($1, c.oid, 'UPDATE') AS may_lock,
       ARRAY(SELECT a.attname::text FROM pg_attribute a
             WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
               AND has_column_privilege($1, c.oid, a.attnum, 'UPDATE')) AS updatable,
       pg_has_role($1, c.relowner, 'USAGE') AS owns,
       pg_has_role($1, c.relowner, 'USAGE')
         OR EXISTS (SELECT FROM pg_roles WHERE rolname = $1 AND rolsuper)
         OR EXISTS (SELECT FROM pg_database d WHERE d.datname = current_database() AND pg_has_role($1, d.datdba, 'USAGE'))
         OR EXISTS (SELECT FROM aclexplode(c.relacl) a
                    WHERE a.privilege_type = 'MAINTAIN' AND (a.grantee = 0 OR pg_has_role($1, a.grantee, 'USAGE')))
         AS may_vacuum,
       c.relrowsecurity AND (c.relforcerowsecurity OR NOT pg_has_role($1, c.relowner, 'USAGE')) AS rls,
       pg_get_userbyid(c.relowner)::text AS owner
FROM pg_class c
WHERE c.oid = $2::int8::oid
