-- The periods whose keys should be there, and what time it is. Read only.
SELECT until, key_id, made_by, ebb.now() AS now FROM ebb.period_key WHERE destroyed_at IS NULL ORDER BY until
