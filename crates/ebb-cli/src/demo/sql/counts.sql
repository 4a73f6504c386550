-- What is due and what lives, in each table of the demo. Read only; reads all of it.
SELECT 'public.lineage_event_idempotency' AS table_name, 'lineage-keys' AS policy,
       count(*) FILTER (WHERE expires_at <= ebb.now()) AS due, count(*) FILTER (WHERE expires_at > ebb.now()) AS live
FROM public.lineage_event_idempotency
UNION ALL
SELECT 'public.web_session', 'web-sessions',
       count(*) FILTER (WHERE last_seen_at <= ebb.now() - interval '30 days'),
       count(*) FILTER (WHERE last_seen_at > ebb.now() - interval '30 days')
FROM public.web_session
UNION ALL
SELECT 'ebb.once_key', 'keep', count(*) FILTER (WHERE expires_at <= ebb.now()), count(*) FILTER (WHERE expires_at > ebb.now())
FROM ebb.once_key
