-- Gives each of these units ($1) its lease row. Expects lease_pkey and unit_pkey.
INSERT INTO ebb.lease (unit)
SELECT u.unit FROM ebb.unit u
WHERE u.unit = ANY($1) AND NOT EXISTS (SELECT FROM ebb.lease l WHERE l.unit = u.unit)
ORDER BY u.unit
ON CONFLICT (unit) DO NOTHING
