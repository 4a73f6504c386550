-- What got another name since it was taken out is known by that from here on: a restored dump has nothing else to know it by.
UPDATE ebb.detached d SET relation = pg_catalog.format('%I.%I', n.nspname, c.relname)
FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE c.oid = d.relid AND d.home = ebb.home() AND d.relation <> pg_catalog.format('%I.%I', n.nspname, c.relname)
