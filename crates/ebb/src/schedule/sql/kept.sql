-- The figures of events that a node kept last, sink by sink, none that are older than ten minutes. Index: sample_series. Read only.
SELECT k.sink,
       COALESCE(max(k.value) FILTER (WHERE k.metric = 'events_due'), 0)::bigint AS due,
       COALESCE(max(k.value) FILTER (WHERE k.metric = 'events_running'), 0)::bigint AS running,
       COALESCE(max(k.value) FILTER (WHERE k.metric = 'events_dead'), 0)::bigint AS dead,
       COALESCE(max(k.value) FILTER (WHERE k.metric = 'events_done_last_hour'), 0)::bigint AS done,
       COALESCE(max(k.value) FILTER (WHERE k.metric = 'events_skipped_last_hour'), 0)::bigint AS skipped,
       COALESCE(max(k.value) FILTER (WHERE k.metric = 'events_average_lateness'), 0)::float8 AS average_lateness,
       COALESCE(max(k.value) FILTER (WHERE k.metric = 'events_late_last_hour'), 0)::bigint AS late
FROM (
    SELECT DISTINCT ON (s.metric, s.labels ->> 'sink') s.metric, s.labels ->> 'sink' AS sink, s.value
    FROM ebb.sample s
    WHERE s.metric = ANY (ARRAY['events_due', 'events_running', 'events_dead', 'events_done_last_hour', 'events_skipped_last_hour',
                                'events_average_lateness', 'events_late_last_hour'])
      AND s.labels ->> 'policy' IS NULL AND s.at > clock_timestamp() - interval '10 minutes'
    ORDER BY s.metric, s.labels ->> 'sink', s.at DESC
) AS k
WHERE k.sink IS NOT NULL
GROUP BY k.sink
