-- Claims the keys $1 in the namespace openlineage and keeps the events whose key was new, one for each key, in the order
-- they came; returns the new keys. Index: once_key_pkey. Lock: the keys, in their order, until the end of the transaction.
WITH given AS MATERIALIZED (
    SELECT DISTINCT ON (g.key) g.*
    FROM unnest($1::text[], $2::timestamptz[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[], $8::text[])
        WITH ORDINALITY AS g (key, event_time, event_type, producer, job_namespace, job_name, run_id, event, place)
    ORDER BY g.key, g.place
),
first AS MATERIALIZED (
    SELECT f.key FROM ebb.once_many('openlineage', (SELECT array_agg(given.key) FROM given)) AS f (key)
),
kept AS (
    INSERT INTO ebb.lineage_event (event_time, event_type, producer, job_namespace, job_name, run_id, event)
    SELECT given.event_time, given.event_type, given.producer, given.job_namespace, given.job_name, given.run_id, given.event::json
    FROM given JOIN first USING (key)
    ORDER BY given.place
)
SELECT first.key FROM first
