-- The link in the warning that one person ($1) got.
SELECT body::jsonb #>> '{data,data,restore_url}' FROM ebb.v_events
WHERE subject_policy = 'accounts' AND subject_id = $1 AND state = 'done'
