-- What triggers of a table ($1) that fire when a row is updated name without a schema, by their text, and what is in schemas $2 and in none
-- of $3: (trigger, names). A function with a path of its own finds what it means. Index: those of pg_class, pg_type and pg_proc by name;
-- read only.
WITH fired AS (
    SELECT DISTINCT t.tgname, p.prosrc
    FROM pg_catalog.pg_trigger t
    JOIN pg_catalog.pg_proc p ON p.oid = t.tgfoid
    JOIN pg_catalog.pg_namespace n ON n.oid = p.pronamespace AND n.nspname <> 'ebb'
    JOIN pg_catalog.pg_language l ON l.oid = p.prolang AND l.lanname NOT IN ('c', 'internal')
    WHERE (t.tgrelid = $1::int8::oid OR t.tgrelid IN (SELECT relid FROM pg_catalog.pg_partition_tree($1::int8::oid)))
      AND NOT t.tgisinternal AND t.tgtype & 16 <> 0 AND t.tgenabled <> 'D'
      AND NOT EXISTS (SELECT FROM unnest(p.proconfig) AS setting WHERE starts_with(setting, 'search_path='))
), named AS (
    SELECT DISTINCT fired.tgname, CASE WHEN starts_with(m[1], '"') THEN btrim(m[1], '"') ELSE lower(m[1]) END AS name, m[2] <> '' AS called
    FROM fired, regexp_matches(fired.prosrc, '(?<![\w.$"])("?[[:alpha:]_][\w$]*"?)(?![\w$]|\s*\.)\s*(\(?)', 'g') AS m
)
SELECT named.tgname::text, array_agg(DISTINCT named.name ORDER BY named.name)
FROM named
CROSS JOIN LATERAL (
    SELECT bool_or(n.nspname = ANY ($2::text[])) AND NOT bool_or(n.nspname = ANY ($3::text[])) AS yes
    FROM (SELECT c.relnamespace FROM pg_catalog.pg_class c WHERE c.relname = named.name AND c.relkind NOT IN ('i', 'I')
          UNION ALL SELECT t.typnamespace FROM pg_catalog.pg_type t WHERE t.typname = named.name
          UNION ALL SELECT p.pronamespace FROM pg_catalog.pg_proc p WHERE p.proname = named.name AND named.called) AS there (namespace)
    JOIN pg_catalog.pg_namespace n ON n.oid = there.namespace
) AS unseen
WHERE unseen.yes
GROUP BY 1
ORDER BY 1
