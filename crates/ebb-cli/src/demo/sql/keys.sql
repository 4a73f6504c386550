-- 20,000 keys of ebb.once whose term is a second: due when the rest of the data has been made.
SELECT count(*) FROM ebb.once_many('webhooks', ARRAY(SELECT 'evt-' || n FROM generate_series(1, 20000) n), interval '1 second');
