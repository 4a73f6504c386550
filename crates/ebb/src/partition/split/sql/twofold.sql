-- Whether whoever writes a row of a partition ($1) could write the same to a part, with the rights of the table's owner: no
-- unique key of it is looked at later than the row is written, no policy keeps the owner from a row, and nobody has taken
-- from the owner what that needs. Read only.
SELECT NOT c.relforcerowsecurity AND NOT t.relforcerowsecurity
   AND NOT EXISTS (SELECT FROM pg_catalog.pg_index x WHERE x.indrelid = c.oid AND x.indisunique AND NOT x.indimmediate)
   AND (SELECT bool_and(pg_catalog.has_table_privilege(t.relowner, t.oid, right_name)) FROM unnest(ARRAY['SELECT', 'INSERT', 'DELETE', 'TRUNCATE']) right_name)
FROM pg_catalog.pg_class c
JOIN pg_catalog.pg_inherits i ON i.inhrelid = c.oid
JOIN pg_catalog.pg_class t ON t.oid = i.inhparent
WHERE c.oid = $1::int8::oid
