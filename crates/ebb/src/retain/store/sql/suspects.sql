-- Columns that are called like an id of the root ($1) and could be one by their type: user_id, "userId" or author_user_id for users,
-- company_id for companies; or only (shares_key) the same primary key in a table called user_…. A number of another size and a text
-- are ids too; of a key of several columns it may be any.
-- Expects pg_attribute; read only.
WITH keys AS (
    SELECT i.indrelid, array_agg(a.attname::text ORDER BY k.at) AS names
    FROM pg_catalog.pg_index i
    CROSS JOIN LATERAL unnest(i.indkey::int2[]) WITH ORDINALITY AS k (attnum, at)
    JOIN pg_catalog.pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.attnum
    WHERE i.indisprimary AND k.at <= i.indnkeyatts
    GROUP BY 1
), root AS (
    -- What it is called, and what one of it may be called.
    SELECT c.oid, keys.names AS key, array_agg(a.atttypid) AS types, array_agg(t.typcategory) AS categories,
           ARRAY[c.relname::text, regexp_replace(c.relname, '(?<=[^s])s$', ''), regexp_replace(c.relname, 'ies$', 'y'),
                 regexp_replace(c.relname, '(s|x|z|ch|sh)es$', '\1')] AS called
    FROM pg_catalog.pg_class c
    JOIN keys ON keys.indrelid = c.oid
    JOIN pg_catalog.pg_attribute a ON a.attrelid = c.oid AND a.attname = ANY (keys.names)
    JOIN pg_catalog.pg_type t ON t.oid = a.atttypid
    WHERE c.oid = $1::int8::oid
    GROUP BY 1, 2
)
SELECT n.nspname::text AS schema, c.relname::text AS name, a.attname::text AS column_name, NOT bool_or(id.called) AS shares_key
FROM root
JOIN pg_catalog.pg_attribute a ON a.attnum > 0 AND NOT a.attisdropped
JOIN pg_catalog.pg_type t ON t.oid = a.atttypid
JOIN pg_catalog.pg_class c ON c.oid = a.attrelid AND c.relkind IN ('r', 'p') AND NOT c.relispartition AND c.relpersistence <> 't'
JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace AND n.nspname NOT IN ('pg_catalog', 'information_schema', 'ebb', 'ebb_sandbox')
CROSS JOIN LATERAL unnest(root.called) AS one (name)
CROSS JOIN LATERAL (SELECT lower(replace(one.name, '_', '')) || 'id' AS name) AS like_one
CROSS JOIN LATERAL (SELECT right(lower(replace(a.attname, '_', '')), length(like_one.name)) = like_one.name AS called) AS id
WHERE c.oid <> root.oid
  AND (a.atttypid = ANY (root.types) OR t.typcategory = 'S' OR (t.typcategory = 'N' AND 'N' = ANY (root.categories)))
  AND (id.called
       OR (a.attname = root.key[cardinality(root.key)] AND starts_with(c.relname, one.name || '_')
           AND EXISTS (SELECT FROM keys WHERE keys.indrelid = c.oid AND keys.names = root.key)))
GROUP BY 1, 2, 3
ORDER BY 1, 2, 3
