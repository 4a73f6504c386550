-- Tables that a column ($2) is called after: orders for order_id, "orderId" or old_order_id, each with its primary key; none where the
-- root ($1) is one of them. Expects pg_class; read only.
WITH asked AS (
    SELECT '_' || lower(regexp_replace($2::text, '([a-z0-9])([A-Z])', '\1_\2', 'g')) AS name
), meant AS (
    SELECT c.oid, written.label
    FROM asked
    CROSS JOIN pg_catalog.pg_class c
    JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace AND n.nspname NOT IN ('pg_catalog', 'information_schema', 'ebb', 'ebb_sandbox')
    CROSS JOIN LATERAL (
        -- Quoted where SQL needs it; the plan is asked before there is an ebb.relation_label.
        SELECT string_agg(CASE WHEN part.name ~ '^[a-z_][a-z0-9_]*$' THEN part.name
                               ELSE '"' || replace(part.name, '"', '""') || '"' END, '.' ORDER BY part.at) AS label
        FROM unnest(ARRAY[n.nspname::text, c.relname::text]) WITH ORDINALITY AS part (name, at)
    ) AS written
    CROSS JOIN LATERAL (SELECT lower(regexp_replace(c.relname, '([a-z0-9])([A-Z])', '\1_\2', 'g')) AS name) AS called
    WHERE c.relkind IN ('r', 'p') AND NOT c.relispartition AND c.relpersistence <> 't'
      AND EXISTS (SELECT FROM unnest(ARRAY[called.name, regexp_replace(called.name, '(?<=[^s])s$', ''), regexp_replace(called.name, 'ies$', 'y'),
                                           regexp_replace(called.name, '(s|x|z|ch|sh)es$', '\1')]) AS one (name)
                  WHERE right(asked.name, length(one.name) + 4) = '_' || one.name || '_id')
)
SELECT meant.label, array_agg(a.attname::text ORDER BY k.at)
FROM meant
JOIN pg_catalog.pg_index i ON i.indrelid = meant.oid AND i.indisprimary
CROSS JOIN LATERAL unnest(i.indkey::int2[]) WITH ORDINALITY AS k (attnum, at)
JOIN pg_catalog.pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.attnum
WHERE k.at <= i.indnkeyatts AND NOT EXISTS (SELECT FROM meant AS other WHERE other.oid = $1::int8::oid)
GROUP BY 1
ORDER BY 1
