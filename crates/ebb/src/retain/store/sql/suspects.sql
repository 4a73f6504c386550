-- Columns that look like an id of the root ($1) by name and type, that no edge of its tree ($3 tables, $4 columns) has and no foreign
-- key leads elsewhere: called as foreign keys to the root are (user_id), or by what one of it is called (user_id, "userId" or
-- author_user_id for users, auth_user and user_entity), or the same primary key without values of its own in a table outside the tree
-- ($2: its tables) called user_…. A name that is another table's is none. Besides: the column's type, the link that would say it (its
-- columns and the root's), and the root's type where the two cannot be compared. Of a key of several columns it may be any. Expects pg_attribute; read only.
WITH keys AS (
    SELECT i.indrelid, array_agg(a.attname::text ORDER BY k.at) AS names
    FROM pg_catalog.pg_index i
    CROSS JOIN LATERAL unnest(i.indkey::int2[]) WITH ORDINALITY AS k (attnum, at)
    JOIN pg_catalog.pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.attnum
    WHERE i.indisprimary AND k.at <= i.indnkeyatts
    GROUP BY 1
), tables AS (
    -- "AppUsers" is called app_users, and one of its rows app_user.
    SELECT c.oid, written.label, called.name AS called,
           ARRAY[called.name, regexp_replace(called.name, '(?<=[^s])s$', ''), regexp_replace(called.name, 'ies$', 'y'),
                 regexp_replace(called.name, '(s|x|z|ch|sh)es$', '\1')] AS ones
    FROM pg_catalog.pg_class c
    JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace AND n.nspname NOT IN ('pg_catalog', 'information_schema', 'ebb', 'ebb_sandbox')
    CROSS JOIN LATERAL (
        -- Quoted where SQL needs it; the plan is asked before there is an ebb.relation_label.
        SELECT string_agg(CASE WHEN part.name ~ '^[a-z_][a-z0-9_]*$' THEN part.name
                               ELSE '"' || replace(part.name, '"', '""') || '"' END, '.' ORDER BY part.at) AS label
        FROM unnest(ARRAY[n.nspname::text, c.relname::text]) WITH ORDINALITY AS part (name, at)
    ) AS written
    CROSS JOIN LATERAL (SELECT lower(regexp_replace(c.relname, '([a-z0-9])([A-Z])', '\1_\2', 'g')) AS name) AS called
    WHERE c.relkind IN ('r', 'p') AND NOT c.relispartition AND c.relpersistence <> 't'
      AND NOT EXISTS (SELECT FROM pg_catalog.pg_depend d
                      WHERE d.classid = 'pg_catalog.pg_class'::regclass AND d.objid = c.oid AND d.deptype = 'e')
), columns AS (
    SELECT a.attrelid, a.attnum, a.attname::text AS name, lower(regexp_replace(a.attname, '([a-z0-9])([A-Z])', '\1_\2', 'g')) AS called,
           a.atttypid, a.atttypmod, a.attnotnull, a.attidentity <> '' AS counted, a.atthasdef AS given,
           CASE WHEN held.type IN ('int2', 'int4', 'int8', 'numeric') THEN 'number'
                WHEN held.type IN ('text', 'varchar', 'bpchar', 'citext') THEN 'text' ELSE held.type END AS sort
    FROM tables
    JOIN pg_catalog.pg_attribute a ON a.attrelid = tables.oid AND a.attnum > 0 AND NOT a.attisdropped
    JOIN pg_catalog.pg_type t ON t.oid = a.atttypid
    LEFT JOIN pg_catalog.pg_type b ON b.oid = t.typbasetype
    CROSS JOIN LATERAL (SELECT coalesce(b.typname, t.typname)::text AS type) AS held
), root AS (
    SELECT tables.oid, tables.called, tables.ones, keys.names AS key
    FROM tables JOIN keys ON keys.indrelid = tables.oid
    WHERE tables.oid = $1::int8::oid
), own AS (
    SELECT columns.* FROM root JOIN columns ON columns.attrelid = root.oid AND columns.name = ANY (root.key)
), led AS (
    -- Columns of foreign keys, and whether they lead to the root's key under a name of their own.
    SELECT DISTINCT k.conrelid, child.attnum, child.called,
           k.confrelid = root.oid AND k.conrelid <> root.oid AND own.name IS NOT NULL
               AND (child.name <> own.name OR child.name <> ALL (coalesce(keys.names, '{}'))) AS to_root
    FROM root
    JOIN pg_catalog.pg_constraint k ON k.contype = 'f'
    CROSS JOIN LATERAL unnest(k.conkey, k.confkey) AS pair (attnum, of)
    JOIN columns AS child ON child.attrelid = k.conrelid AND child.attnum = pair.attnum
    LEFT JOIN keys ON keys.indrelid = k.conrelid
    LEFT JOIN own ON own.attnum = pair.of AND k.confrelid = root.oid
), words AS (
    -- What one of the root is called: by its whole name, or by the last word of it unless that is another table's.
    SELECT one.name FROM root CROSS JOIN LATERAL unnest(root.ones) AS one (name)
    UNION
    SELECT one.name
    FROM root
    CROSS JOIN LATERAL (SELECT regexp_replace(root.called, '_(entity|entities|table|tbl|records?|models?)$', '') AS name) AS bare
    CROSS JOIN LATERAL unnest(root.ones || bare.name) AS whole (name)
    CROSS JOIN LATERAL (VALUES (whole.name), (regexp_replace(whole.name, '^.*_', ''))) AS one (name)
    WHERE one.name NOT IN ('entity', 'entities', 'table', 'tbl', 'record', 'records', 'model', 'models')
      AND NOT EXISTS (SELECT FROM tables AS other WHERE other.oid <> root.oid AND one.name = ANY (other.ones))
      AND (EXISTS (SELECT FROM led WHERE led.to_root AND led.called = one.name || '_id')
           OR NOT EXISTS (SELECT FROM led WHERE led.called = one.name || '_id'))
), ids AS (
    SELECT words.name || link.by || suffix.name AS name
    FROM words
    CROSS JOIN (VALUES ('_'), ('')) AS link (by)
    CROSS JOIN (SELECT 'id' AS name UNION SELECT regexp_replace(own.called, '^.*_', '') FROM own) AS suffix
), named AS MATERIALIZED (
    SELECT tables.label, c.*
    FROM root
    JOIN tables ON tables.oid <> root.oid
    JOIN columns AS c ON c.attrelid = tables.oid
    WHERE NOT c.counted
      AND (EXISTS (SELECT FROM ids WHERE right('_' || c.called, length(ids.name) + 1) = '_' || ids.name)
           OR c.called IN (SELECT led.called FROM led WHERE led.to_root)
           OR (c.name = root.key[cardinality(root.key)] AND NOT c.given AND tables.label <> ALL ($2)
               AND EXISTS (SELECT FROM words WHERE starts_with(tables.called, words.name || '_'))
               AND (c.attrelid, root.key) IN (SELECT keys.indrelid, keys.names FROM keys)))
      AND (c.attrelid, c.attnum) NOT IN (SELECT led.conrelid, led.attnum FROM led)
      AND NOT EXISTS (SELECT FROM unnest($3::text[], $4::text[]) AS edge (relation, name)
                      WHERE edge.relation = tables.label AND edge.name = c.name)
)
SELECT c.label AS "table", c.name AS "column", pg_catalog.format_type(c.atttypid, c.atttypmod) AS sql_type, NOT c.attnotnull AS nullable,
       link.columns, link.references, link.other_type
FROM root
CROSS JOIN named AS c
CROSS JOIN LATERAL (
    -- Of the key the column that it would be, if it can hold it, beside those of the same name as the others.
    SELECT array_agg(CASE WHEN key.name = held.name THEN c.name ELSE other.attname::text END ORDER BY key.at) AS columns,
           array_agg(key.name ORDER BY key.at) AS references,
           min(pg_catalog.format_type(held.atttypid, held.atttypmod)) FILTER (WHERE held.sort <> c.sort) AS other_type
    FROM (SELECT own.* FROM own
          WHERE own.sort = c.sort OR (c.sort = 'uuid' AND own.sort = 'text')
             OR (c.sort = 'text' AND (c.atttypmod < 4 OR c.atttypmod - 4 >= CASE own.sort WHEN 'uuid' THEN 32 ELSE 2 END))
          ORDER BY own.name = c.name DESC, own.sort = c.sort DESC, array_position(root.key, own.name) DESC LIMIT 1) AS held
    CROSS JOIN unnest(root.key) WITH ORDINALITY AS key (name, at)
    LEFT JOIN pg_catalog.pg_attribute other ON other.attrelid = c.attrelid AND other.attname = key.name AND NOT other.attisdropped
) AS link
WHERE link.columns IS NOT NULL
  AND NOT EXISTS (SELECT FROM pg_catalog.pg_attrdef d WHERE d.adrelid = c.attrelid AND d.adnum = c.attnum
                  AND pg_catalog.pg_get_expr(d.adbin, d.adrelid) LIKE 'nextval(%')
ORDER BY 1, 2
