-- How late what was delivered in the last $1 was, in steps that end at $2 seconds each; what is later than the last one counts in a
-- step of its own. Expects event_history_finished_at. Read only.
SELECT width_bucket(extract(epoch FROM h.finished_at - h.due_at)::float8, $2::float8[]) AS step, count(*) AS events
FROM ebb.event_history h
WHERE h.finished_at > ebb.now() - $1::interval AND h.state = 'done'
GROUP BY 1
ORDER BY 1
