-- Revokes the token $1 on behalf of $2: true; false when it was before; no row when there is none.
-- Expects token_pkey. Locks the token's row.
WITH revoked AS (
    UPDATE ebb.token t SET revoked_at = clock_timestamp(), revoked_by = $2
    WHERE t.id = $1 AND t.revoked_at IS NULL
    RETURNING t.id
)
SELECT EXISTS (SELECT FROM revoked) FROM ebb.token t WHERE t.id = $1
