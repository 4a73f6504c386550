-- Makes the key ($2) of a period ($1) known, made by this node. Index: period_key_pkey; waits for whoever registers the same period.
INSERT INTO ebb.period_key (until, key_id, made_by)
VALUES ($1, $2, COALESCE(NULLIF(split_part(current_setting('application_name'), '/', 2), ''), session_user))
ON CONFLICT (until) DO NOTHING
