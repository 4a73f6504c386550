-- Every token, newest first, without what proves it. Tokens are few; read only, for the owner.
SELECT t.id, t.name, t.role, t.created_at, t.created_by, t.expires_at, t.last_used_at, t.revoked_at, t.revoked_by,
       CASE WHEN t.revoked_at IS NOT NULL THEN 'revoked'
            WHEN t.expires_at <= clock_timestamp() THEN 'expired'
            ELSE 'active' END AS state
FROM ebb.token t
ORDER BY t.created_at DESC, t.id
