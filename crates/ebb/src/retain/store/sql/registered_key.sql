-- The key that is known for a period ($1), by which node, and when it was destroyed. Index: period_key_pkey; read only.
SELECT key_id, made_by, destroyed_at FROM ebb.period_key WHERE until = $1
