-- The columns of a relation with their base types (a domain counts as what it is over, at any depth). Read only.
WITH RECURSIVE base AS (
    SELECT a.attnum, t.oid, t.typtype, t.typbasetype
    FROM pg_catalog.pg_attribute a
    JOIN pg_catalog.pg_type t ON t.oid = a.atttypid
    WHERE a.attrelid = $1::int8::oid AND a.attnum > 0 AND NOT a.attisdropped
    UNION ALL
    SELECT base.attnum, t.oid, t.typtype, t.typbasetype
    FROM base
    JOIN pg_catalog.pg_type t ON t.oid = base.typbasetype
    WHERE base.typtype = 'd'
)
SELECT a.attname AS name, a.attnum AS number, pg_catalog.format_type(base.oid, NULL) AS base_type, a.attnotnull AS not_null
FROM base
JOIN pg_catalog.pg_attribute a ON a.attrelid = $1::int8::oid AND a.attnum = base.attnum
WHERE base.typtype <> 'd'
ORDER BY a.attnum
