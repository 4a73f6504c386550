-- How many events subjects ($2) of a policy ($1) have, counted up to $3. Index: event_subject, event_history_subject; read only.
SELECT count(*) FROM (
    SELECT FROM ebb.event e WHERE e.subject_policy = $1 AND e.subject_id = ANY ($2)
    UNION ALL
    SELECT FROM ebb.event_history h WHERE h.subject_policy = $1 AND h.subject_id = ANY ($2)
    LIMIT $3) AS found
