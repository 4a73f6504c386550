-- The application goes on: $1 events come in, each with a key of its own ($2: from which number on).
INSERT INTO public.lineage_event_idempotency
SELECT 'live-' || ($2 + n), ebb.now(), ebb.now() + interval '24 hours', '{"producer": "live"}'
FROM generate_series(1, $1) n
