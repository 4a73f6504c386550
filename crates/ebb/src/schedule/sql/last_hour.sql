-- How the last hour went, by sink: how many ended how, and how late what was delivered was on average. Expects
-- event_history_finished_at. Read only.
SELECT h.sink, count(*) FILTER (WHERE h.state = 'done') AS done, count(*) FILTER (WHERE h.state = 'skipped') AS skipped,
       COALESCE(avg(extract(epoch FROM h.finished_at - h.due_at)) FILTER (WHERE h.state = 'done'), 0)::float8 AS average_lateness,
       count(*) FILTER (WHERE h.state = 'done' AND h.finished_at - h.due_at > $1::interval) AS late
FROM ebb.event_history h
WHERE h.finished_at > ebb.now() - interval '1 hour'
GROUP BY h.sink
