-- Stores a token: $1 id, $2 name, $3 role, $4 hash of the secret, $5 how long it works, $6 by whom. Expects token_pkey.
INSERT INTO ebb.token (id, name, role, hash, expires_at, created_by)
VALUES ($1, $2, $3, $4, clock_timestamp() + $5, $6)
