-- Makes a subject key ($1) the database's where it knows none yet. Index: subject_key_pkey; waits for whoever does the same.
INSERT INTO ebb.subject_key (key_id, used_by)
VALUES ($1, COALESCE(NULLIF(split_part(current_setting('application_name'), '/', 2), ''), session_user))
ON CONFLICT (one) DO NOTHING
