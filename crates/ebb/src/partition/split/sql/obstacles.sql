-- What would break, or be left behind, when the parts take the place of a partition ($2) of a table ($1). Read only.
SELECT 'foreign key' AS what, con.conname::text AS name, con.conrelid::regclass::text AS of
FROM pg_catalog.pg_constraint con JOIN pg_catalog.pg_class c ON c.oid = con.conrelid
WHERE con.contype = 'f' AND con.conparentid = 0 AND con.confrelid IN ($1::int8::oid, $2::int8::oid)
  -- Those in referring.sql let go for the swap.
  AND NOT (con.confrelid = $1::int8::oid AND c.relkind = 'r' AND NOT c.relispartition AND pg_catalog.pg_has_role(c.relowner, 'USAGE'))
UNION ALL
SELECT 'trigger', t.tgname::text, t.tgrelid::regclass::text
FROM pg_catalog.pg_trigger t WHERE t.tgrelid = $2::int8::oid AND NOT t.tgisinternal AND t.tgparentid = 0 AND t.tgname !~ '^a_ebb_twin'
UNION ALL
-- A publication that has the table without naming it has whatever is made beside it, too.
SELECT DISTINCT 'publication', t.pubname::text, c.oid::regclass::text
FROM pg_catalog.pg_class c
JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
JOIN pg_catalog.pg_publication_tables t ON t.schemaname = n.nspname AND t.tablename = c.relname
JOIN pg_catalog.pg_publication p ON p.pubname = t.pubname
WHERE c.oid IN ($1::int8::oid, $2::int8::oid)
  AND NOT EXISTS (SELECT FROM pg_catalog.pg_publication_rel r WHERE r.prpubid = p.oid AND r.prrelid IN ($1::int8::oid, $2::int8::oid))
UNION ALL
SELECT 'owner', pg_catalog.pg_get_userbyid(c.relowner)::text, c.oid::regclass::text
FROM pg_catalog.pg_class c WHERE c.oid IN ($1::int8::oid, $2::int8::oid) AND NOT pg_catalog.pg_has_role(c.relowner, 'USAGE')
