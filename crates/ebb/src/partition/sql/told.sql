-- What stands in the way of rows that move back into a table ($1). What takes such a row for one that comes or goes, though
-- the session's triggers are off: triggers that are ENABLE ALWAYS or REPLICA, and publications while something reads the
-- log. And row-level security that its owner is under, too: what stands in for the unique keys would not see every row.
-- Read only.
SELECT pg_catalog.format('trigger %s is ENABLE %s and would fire for every row that moves back', quote_ident(t.tgname),
                         CASE t.tgenabled WHEN 'A' THEN 'ALWAYS' ELSE 'REPLICA' END) AS what
FROM pg_catalog.pg_trigger t
WHERE t.tgrelid = $1::int8::oid AND NOT t.tgisinternal AND t.tgenabled IN ('A', 'R') AND t.tgtype & 12 <> 0 AND t.tgname !~ '^(!|a_|zz_)?ebb_'
UNION ALL
SELECT 'row-level security is forced upon its owner, so what stands in for the unique keys would not see every row'
FROM pg_catalog.pg_class c JOIN pg_catalog.pg_roles r ON r.oid = c.relowner
WHERE c.oid = $1::int8::oid AND c.relrowsecurity AND c.relforcerowsecurity AND NOT r.rolsuper AND NOT r.rolbypassrls
  AND EXISTS (SELECT FROM pg_catalog.pg_index x WHERE x.indrelid = c.oid AND x.indisunique)
UNION ALL
SELECT DISTINCT pg_catalog.format('publication %s would send every row that moves back a second time', quote_ident(p.pubname))
FROM pg_catalog.pg_class c
JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
JOIN pg_catalog.pg_publication_tables t ON t.schemaname = n.nspname AND t.tablename = c.relname
JOIN pg_catalog.pg_publication p ON p.pubname = t.pubname AND p.pubinsert
WHERE c.oid = $1::int8::oid
  AND EXISTS (SELECT FROM pg_catalog.pg_replication_slots s WHERE s.slot_type = 'logical' AND s.database = current_database())
ORDER BY 1
