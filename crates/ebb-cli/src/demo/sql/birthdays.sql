-- A day that no node saw: yesterday 500 people in five zones had their birthday registered, for some minute of the hours to come.
UPDATE ebb.clock_offset SET shift = shift - interval '1 day';
SELECT count(ebb.schedule_yearly('greetings', extract(month FROM at)::integer, extract(day FROM at)::integer, at::time, zone,
                                 jsonb_build_object('type', 'birthday', 'person', n), 'birthday-' || n))
FROM generate_series(1, 500) AS n
CROSS JOIN LATERAL (SELECT (ARRAY['Asia/Jakarta', 'Europe/Berlin', 'America/New_York', 'Pacific/Auckland', 'UTC'])[n % 5 + 1]) AS z (zone)
CROSS JOIN LATERAL (SELECT date_trunc('minute', (ebb.now() + n * interval '2 minutes') AT TIME ZONE zone) + interval '1 minute') AS l (at);
UPDATE ebb.clock_offset SET shift = shift + interval '1 day';
