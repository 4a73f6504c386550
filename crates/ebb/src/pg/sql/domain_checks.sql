-- The parsed checks of domains ($1) and of every domain and cast inside them. Expects pg_constraint (contypid); read only.
-- A check names types only through its own text, so the base types are followed by the catalog and casts by the caller's
-- pattern: oids after ":resulttype ".
WITH RECURSIVE reached AS (
    SELECT oid FROM pg_catalog.pg_type WHERE oid::int8 = ANY($1)
    UNION
    SELECT more.oid
    FROM reached
    JOIN pg_catalog.pg_type t ON t.oid = reached.oid
    CROSS JOIN LATERAL (
        SELECT t.typbasetype AS oid WHERE t.typtype = 'd'
        UNION ALL
        SELECT found[1]::oid
        FROM pg_catalog.pg_constraint c
        CROSS JOIN LATERAL pg_catalog.regexp_matches(c.conbin::text, ':resulttype (\d+)', 'g') AS found
        WHERE c.contypid = t.oid
    ) more
)
SELECT c.conbin::text
FROM reached
JOIN pg_catalog.pg_constraint c ON c.contypid = reached.oid
