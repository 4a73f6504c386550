-- Tables outside a tree ($2: its tables) with a column that is called like an id of the root ($1) and could be one by its type:
-- user_id, "userId" or author_user_id for users, or the same primary key in a table called user_…. A number of another size and a text are
-- ids too. Expects pg_attribute; read only.
WITH root AS (
    SELECT c.oid, c.relname::text AS name, regexp_replace(c.relname, '(?<=[^s])s$', '') AS one, a.attname AS key, a.atttypid AS type,
           t.typcategory AS category
    FROM pg_catalog.pg_class c
    JOIN pg_catalog.pg_index i ON i.indrelid = c.oid AND i.indisprimary AND i.indnkeyatts = 1
    JOIN pg_catalog.pg_attribute a ON a.attrelid = c.oid AND a.attnum = i.indkey[0]
    JOIN pg_catalog.pg_type t ON t.oid = a.atttypid
    WHERE c.oid = $1::int8::oid
), called AS (
    SELECT root.*, lower(replace(root.one, '_', '')) || 'id' AS one_id, lower(replace(root.name, '_', '')) || 'id' AS name_id FROM root
)
SELECT n.nspname || '.' || c.relname AS suspect, a.attname::text
FROM called root
JOIN pg_catalog.pg_attribute a ON a.attnum > 0 AND NOT a.attisdropped
JOIN pg_catalog.pg_type t ON t.oid = a.atttypid
JOIN pg_catalog.pg_class c ON c.oid = a.attrelid AND c.relkind IN ('r', 'p') AND NOT c.relispartition AND c.relpersistence <> 't'
JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace AND n.nspname NOT IN ('pg_catalog', 'information_schema', 'ebb', 'ebb_sandbox')
CROSS JOIN LATERAL (SELECT lower(replace(a.attname, '_', '')) AS called) norm
WHERE c.oid <> root.oid AND n.nspname || '.' || c.relname <> ALL ($2)
  AND (a.atttypid = root.type OR t.typcategory = 'S' OR (t.typcategory = 'N' AND root.category = 'N'))
  AND (right(norm.called, length(root.one_id)) = root.one_id OR right(norm.called, length(root.name_id)) = root.name_id
       OR (a.attname = root.key AND c.relname ~ ('^' || root.one || 's?_')
           AND EXISTS (SELECT FROM pg_catalog.pg_index i WHERE i.indrelid = c.oid AND i.indisprimary AND i.indnkeyatts = 1
                       AND i.indkey[0] = a.attnum)))
ORDER BY 1, 2
