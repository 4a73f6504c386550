-- Drops the units that no policy has any more, unless somebody works on them: $1 the units that still exist.
WITH gone AS (
    DELETE FROM ebb.lease l
    WHERE NOT l.unit = ANY($1) AND (l.holder IS NULL OR l.expires_at <= clock_timestamp())
    RETURNING l.unit
)
DELETE FROM ebb.unit u USING gone WHERE u.unit = gone.unit
