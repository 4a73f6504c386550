-- Half a year of rows in one table, as it grows when nobody thinks of partitions.
CREATE TABLE public.ingest (site_id int NOT NULL, idempotency_key text NOT NULL, created_at timestamptz NOT NULL DEFAULT now(), payload text, PRIMARY KEY (site_id, idempotency_key));
INSERT INTO public.ingest (site_id, idempotency_key, created_at, payload)
SELECT n % 20, 'key-' || n, date_trunc('month', ebb.now()) + interval '10 days' - n * interval '2 minutes', repeat('x', 40) FROM generate_series(1, 120000) n;
ANALYZE public.ingest;
