-- Takes over units that are due and free: $1 candidates, $2 holder, $3 node, $4 term, $5 how many, $6 due or not.
-- A free lease that still has a holder was not given back: its run was cut off, perhaps after it had heard a trigger,
-- so the unit is due whatever next_at says.
-- A nudge is a trigger from a transaction that must not wait for the unit's row.
-- Expects lease_pkey, unit_pkey and nudge_unit. Locks lease rows FOR UPDATE SKIP LOCKED: it passes by a unit whose batch is
-- running (that batch holds FOR KEY SHARE), and a generation that only grows fences whoever held it before.
WITH free AS (
    SELECT l.unit
    FROM ebb.lease l
    JOIN ebb.unit u ON u.unit = l.unit
    WHERE l.unit = ANY($1)
      AND ($6 OR u.triggered OR u.next_at <= ebb.now() OR l.holder IS NOT NULL
           OR EXISTS (SELECT FROM ebb.nudge n WHERE n.unit = l.unit))
      AND (l.holder IS NULL OR l.holder = $2 OR l.expires_at <= clock_timestamp())
    ORDER BY u.triggered DESC, u.next_at, l.unit
    LIMIT $5
    FOR UPDATE OF l SKIP LOCKED
)
UPDATE ebb.lease l
SET holder = $2, node = $3, generation = l.generation + 1, expires_at = clock_timestamp() + $4
FROM free
WHERE l.unit = free.unit
RETURNING l.unit, l.generation
