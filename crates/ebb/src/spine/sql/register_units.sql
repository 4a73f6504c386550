-- Makes units exist: $1 their names, $2 chores, $3 policies, $4 leaves, $5 when a new one is due first (null: at once), $6 the
-- latest time at which one is due. Expects unit_pkey. Locks, in the order of their names, only what is due later than that.
WITH wanted AS (
    SELECT * FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::timestamptz[], $6::timestamptz[])
        AS w (unit, chore, policy, leaf, first_at, latest)
),
late AS (
    SELECT u.unit, w.latest FROM ebb.unit u JOIN wanted w ON w.unit = u.unit
    WHERE u.next_at > w.latest
    ORDER BY u.unit
    FOR UPDATE OF u
),
sooner AS (
    UPDATE ebb.unit u SET next_at = late.latest FROM late WHERE u.unit = late.unit
)
INSERT INTO ebb.unit (unit, chore, policy, leaf, next_at)
SELECT w.unit, w.chore, w.policy, w.leaf, COALESCE(w.first_at, '-infinity')
FROM wanted w
WHERE NOT EXISTS (SELECT FROM ebb.unit u WHERE u.unit = w.unit)
ORDER BY w.unit
ON CONFLICT (unit) DO NOTHING
