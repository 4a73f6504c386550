-- What keeps whoever writes a row of a partition ($1) from writing the same to a part, with the rights of the table's owner:
-- unique keys that are looked at later than the row is written; policies that bind the owner, too; and rights that somebody
-- has taken from the owner. Read only.
SELECT ARRAY(SELECT x.indexrelid::regclass::text FROM pg_catalog.pg_index x WHERE x.indrelid = c.oid AND x.indisunique AND NOT x.indimmediate ORDER BY 1) AS late,
       t.relforcerowsecurity AS is_forced,
       ARRAY(SELECT right_name FROM unnest(ARRAY['SELECT', 'INSERT', 'DELETE', 'TRUNCATE']) right_name
             WHERE NOT pg_catalog.has_table_privilege(t.relowner, t.oid, right_name)) AS lacking
FROM pg_catalog.pg_class c
JOIN pg_catalog.pg_inherits i ON i.inhrelid = c.oid
JOIN pg_catalog.pg_class t ON t.oid = i.inhparent
WHERE c.oid = $1::int8::oid
