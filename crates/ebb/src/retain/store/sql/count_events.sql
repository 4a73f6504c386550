-- How many events subjects ($2) of a policy ($1) have, counted up to $3. The ids are selected: in the statement itself every
-- partition's plan would weigh each of them. Index: event_subject, event_history_subject; read only.
SELECT count(*) FROM (
    SELECT FROM ebb.event e WHERE e.subject_policy = $1 AND e.subject_id = ANY ((SELECT $2::text[])::text[])
    UNION ALL
    SELECT FROM ebb.event_history h WHERE h.subject_policy = $1 AND h.subject_id = ANY ((SELECT $2::text[])::text[])
    LIMIT $3) AS found
