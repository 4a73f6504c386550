-- Erased subjects ($2) of a policy ($1): what is to come for them is cancelled, and what was delivered keeps nothing of them.
-- Says of each that had events how many were cancelled. The ids are selected, as in count_events. Index: event_subject,
-- event_history_subject, recurring_subject.
SELECT (s.at - 1)::int, ebb.forget_subject_events($1, s.id)
FROM unnest($2::text[]) WITH ORDINALITY AS s (id, at)
WHERE s.id IN (SELECT e.subject_id FROM ebb.event e WHERE e.subject_policy = $1 AND e.subject_id = ANY ((SELECT $2::text[])::text[])
               UNION ALL
               SELECT h.subject_id FROM ebb.event_history h
               WHERE h.subject_policy = $1 AND h.subject_id = ANY ((SELECT $2::text[])::text[])
               UNION ALL
               SELECT r.subject_id FROM ebb.recurring r WHERE r.subject_policy = $1 AND r.subject_id = ANY ((SELECT $2::text[])::text[]))
