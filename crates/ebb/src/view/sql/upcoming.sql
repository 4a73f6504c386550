-- What falls due on each of the $2 days that follow $1, besides rows of tables: open deletions and events. Index: deletion_due and
-- event_ready where they are few; otherwise read whole, within the statement's time. Read only.
SELECT floor(extract(epoch FROM u.at - $1::timestamptz) / 86400)::int AS day, u.kind, count(*) AS things
FROM (
    SELECT 'subjects' AS kind, GREATEST(d.due_at, $1::timestamptz) AS at
    FROM ebb.deletion d WHERE d.state IN ('pending', 'warned') AND d.due_at < $1::timestamptz + make_interval(days => $2)
    UNION ALL
    SELECT 'events', GREATEST(e.ready_at, $1::timestamptz)
    FROM ebb.event e WHERE e.ready_at < $1::timestamptz + make_interval(days => $2)
) AS u
GROUP BY 1, 2
ORDER BY 1, 2
