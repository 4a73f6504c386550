-- How many triggers on a table ($1) an INSERT sets off. Read only.
SELECT count(*) FROM pg_catalog.pg_trigger t
WHERE t.tgrelid = $1::int8::oid AND NOT t.tgisinternal AND t.tgenabled <> 'D' AND t.tgtype & 4 = 4
