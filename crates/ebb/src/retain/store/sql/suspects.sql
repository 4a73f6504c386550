-- Tables outside a tree ($2: its tables) with a column that is called like an id of the root ($1) and has its key's type:
-- user_id for users, or the same primary key in a table called user_…. Expects pg_attribute; read only.
WITH root AS (
    SELECT c.oid, c.relname::text AS name, regexp_replace(c.relname, '(?<=[^s])s$', '') AS one, a.attname AS key, a.atttypid AS type
    FROM pg_catalog.pg_class c
    JOIN pg_catalog.pg_index i ON i.indrelid = c.oid AND i.indisprimary AND i.indnkeyatts = 1
    JOIN pg_catalog.pg_attribute a ON a.attrelid = c.oid AND a.attnum = i.indkey[0]
    WHERE c.oid = $1::int8::oid
)
SELECT n.nspname || '.' || c.relname AS suspect, a.attname::text
FROM root
JOIN pg_catalog.pg_attribute a ON a.atttypid = root.type AND a.attnum > 0 AND NOT a.attisdropped
JOIN pg_catalog.pg_class c ON c.oid = a.attrelid AND c.relkind IN ('r', 'p') AND NOT c.relispartition AND c.relpersistence <> 't'
JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace AND n.nspname NOT IN ('pg_catalog', 'information_schema', 'ebb')
WHERE c.oid <> root.oid AND n.nspname || '.' || c.relname <> ALL ($2)
  AND (a.attname IN (root.one || '_id', root.name || '_id')
       OR (a.attname = root.key AND c.relname ~ ('^' || root.one || 's?_')
           AND EXISTS (SELECT FROM pg_catalog.pg_index i WHERE i.indrelid = c.oid AND i.indisprimary AND i.indnkeyatts = 1
                       AND i.indkey[0] = a.attnum)))
ORDER BY 1, 2
