-- Tables outside a tree ($2: its tables) with a column that is called like an id of the root ($1) and could be one by its type:
-- user_id, "userId" or author_user_id for users, or the same primary key in a table called user_…. A number of another size and a text are
-- ids too; of a key of several columns it may be any. Expects pg_attribute; read only.
WITH keys AS (
    SELECT i.indrelid, array_agg(a.attname::text ORDER BY k.at) AS names
    FROM pg_catalog.pg_index i
    CROSS JOIN LATERAL unnest(i.indkey::int2[]) WITH ORDINALITY AS k (attnum, at)
    JOIN pg_catalog.pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.attnum
    WHERE i.indisprimary AND k.at <= i.indnkeyatts
    GROUP BY 1
), root AS (
    SELECT c.oid, c.relname::text AS name, regexp_replace(c.relname, '(?<=[^s])s$', '') AS one, keys.names AS key,
           array_agg(a.atttypid) AS types, array_agg(t.typcategory) AS categories
    FROM pg_catalog.pg_class c
    JOIN keys ON keys.indrelid = c.oid
    JOIN pg_catalog.pg_attribute a ON a.attrelid = c.oid AND a.attname = ANY (keys.names)
    JOIN pg_catalog.pg_type t ON t.oid = a.atttypid
    WHERE c.oid = $1::int8::oid
    GROUP BY 1, 2, 3, 4
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
  AND (a.atttypid = ANY (root.types) OR t.typcategory = 'S' OR (t.typcategory = 'N' AND 'N' = ANY (root.categories)))
  AND (right(norm.called, length(root.one_id)) = root.one_id OR right(norm.called, length(root.name_id)) = root.name_id
       OR (a.attname = root.key[cardinality(root.key)] AND c.relname ~ ('^' || root.one || 's?_')
           AND EXISTS (SELECT FROM keys WHERE keys.indrelid = c.oid AND keys.names = root.key)))
ORDER BY 1, 2
