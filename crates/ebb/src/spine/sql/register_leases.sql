-- Gives every unit of a policy ($1) its lease row. Expects lease_pkey.
INSERT INTO ebb.lease (unit)
SELECT unit FROM ebb.unit WHERE policy = $1
ON CONFLICT (unit) DO NOTHING
