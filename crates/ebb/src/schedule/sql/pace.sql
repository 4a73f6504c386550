-- How many events of each sink ended in the last $1. Expects event_history_finished_at. Read only.
SELECT h.sink, count(*) AS ended
FROM ebb.event_history h
WHERE h.finished_at > ebb.now() - $1::interval
GROUP BY h.sink
