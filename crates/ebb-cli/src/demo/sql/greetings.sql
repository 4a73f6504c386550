-- Greetings that were sent, how often at most to one person, those that still wait, and how late the latest was, in seconds. Read only.
SELECT count(*) FILTER (WHERE state = 'done') AS sent, count(*) FILTER (WHERE state <> 'done') AS waiting,
       count(*) FILTER (WHERE state = 'done') - count(DISTINCT occurrence) FILTER (WHERE state = 'done') AS twice,
       COALESCE(max(extract(epoch FROM finished_at - due_at)), 0)::float8 AS latest
FROM ebb.v_events WHERE sink = 'greetings'
