-- Whether what a rollback builds for itself is in a schema ($1): keys as they were of a table ($2), or notes of those that came. Read only.
SELECT EXISTS (SELECT FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
               WHERE n.nspname = $1 AND c.relname ~ pg_catalog.format('^ebb_%s_(b|fresh)\d+$', $2::int8))
