-- What a service leaves behind in three days: 300,000 idempotency keys of which 200,000 are past their 24 hours, and
-- 60,000 sessions of which 15,000 are past their month. Nothing else becomes due within the first quarter of an hour, so that what is counted first is what must be gone at the end.
CREATE TABLE public.lineage_event_idempotency (
    idempotency_key text        NOT NULL,
    created_at      timestamptz NOT NULL,
    expires_at      timestamptz NOT NULL,
    event_metadata  jsonb
);
INSERT INTO public.lineage_event_idempotency
SELECT encode(sha256(convert_to('run-' || n, 'UTF8')), 'hex'), at, at + interval '24 hours',
       jsonb_build_object('producer', 'dbt', 'eventType', CASE n % 2 WHEN 0 THEN 'START' ELSE 'COMPLETE' END)
FROM (SELECT n, now() - CASE WHEN n <= 200000 THEN interval '72 hours' - n / 200000.0 * interval '47 hours'
                             ELSE interval '23 hours 45 minutes' * (300000 - n) / 100000.0 END AS at
      FROM generate_series(1, 300000) n) AS event;
ALTER TABLE public.lineage_event_idempotency ADD PRIMARY KEY (idempotency_key);
CREATE INDEX idx_idempotency_expires ON public.lineage_event_idempotency (expires_at);

CREATE TABLE public.web_session (
    region          text        NOT NULL,
    id              bigint      NOT NULL,
    user_id         bigint      NOT NULL,
    last_seen_at    timestamptz NOT NULL,
    PRIMARY KEY (region, id)
) PARTITION BY LIST (region);
CREATE TABLE public.web_session_ap PARTITION OF public.web_session FOR VALUES IN ('ap');
CREATE TABLE public.web_session_eu PARTITION OF public.web_session FOR VALUES IN ('eu');
CREATE TABLE public.web_session_us PARTITION OF public.web_session FOR VALUES IN ('us');
INSERT INTO public.web_session
SELECT (ARRAY['ap', 'eu', 'us'])[n % 3 + 1], n, n % 7000,
       now() - CASE WHEN n <= 15000 THEN interval '45 days' - n / 15000.0 * interval '14 days'
                    ELSE interval '29 days' * (60000 - n) / 45000.0 END
FROM generate_series(1, 60000) n;
CREATE INDEX ON public.web_session (last_seen_at);
ANALYZE public.lineage_event_idempotency, public.web_session;

-- Where workers make their scratch tables.
CREATE SCHEMA scratch;
