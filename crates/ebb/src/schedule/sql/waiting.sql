-- How many events there are in each of these sinks ($1), counted up to $2; none for one that is empty. Expects event_ready. Read only.
SELECT s.sink, e.events
FROM unnest($1::text[]) AS s (sink)
CROSS JOIN LATERAL (SELECT count(*) AS events FROM (SELECT FROM ebb.event e WHERE e.sink = s.sink LIMIT $2) AS e) AS e
WHERE e.events > 0
ORDER BY s.sink
