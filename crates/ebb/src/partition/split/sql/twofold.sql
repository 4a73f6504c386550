-- Whether whoever writes a row of a partition ($1) could write the same to a part: no unique key of it is looked at later
-- than the row is written, and no policy keeps the owner of the parts from a row. Read only.
SELECT NOT c.relforcerowsecurity
   AND NOT EXISTS (SELECT FROM pg_catalog.pg_index x WHERE x.indrelid = c.oid AND x.indisunique AND NOT x.indimmediate)
FROM pg_catalog.pg_class c
WHERE c.oid = $1::int8::oid
