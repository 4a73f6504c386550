-- How many triggers that people made on a table ($1) an INSERT or a DELETE sets off. Read only.
SELECT count(*) FROM pg_catalog.pg_trigger t
WHERE t.tgrelid = $1::int8::oid AND NOT t.tgisinternal AND t.tgenabled <> 'D' AND t.tgtype & 12 <> 0 AND t.tgname !~ '^(!|a_|zz_)?ebb_'
