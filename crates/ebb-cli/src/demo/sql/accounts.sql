-- A shop's accounts. Twelve people deleted theirs ninety days ago, in the application; a court wants the data of one of them.
CREATE TABLE public.account (
    id bigint PRIMARY KEY, email text NOT NULL, name text NOT NULL, deleted_at timestamptz,
    scheduled_deletion_at timestamptz, deletion_notified_at timestamptz);
CREATE TABLE public.purchase (id bigint PRIMARY KEY, account_id bigint NOT NULL REFERENCES public.account ON DELETE CASCADE, total numeric NOT NULL);
CREATE TABLE public.address (id bigint PRIMARY KEY, account_id bigint NOT NULL REFERENCES public.account ON DELETE CASCADE, street text NOT NULL);
CREATE INDEX ON public.purchase (account_id);
CREATE INDEX ON public.address (account_id);
INSERT INTO public.account (id, email, name, deleted_at)
SELECT n, 'person-' || n || '@example.test', 'Person ' || n, CASE WHEN n <= 12 THEN ebb.now() - interval '90 days' END
FROM generate_series(1, 40) AS n;
INSERT INTO public.purchase SELECT a * 100 + n, a, n * 10 FROM generate_series(1, 40) AS a, generate_series(1, 5) AS n;
INSERT INTO public.address SELECT a * 10 + n, a, 'Jalan ' || n FROM generate_series(1, 40) AS a, generate_series(1, 2) AS n;
