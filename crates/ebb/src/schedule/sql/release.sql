-- Gives claimed events back as ready, in their old place: $1 ids, $2 tokens, $3 how many attempts do not count. Wakes whoever
-- sleeps. Expects event_pkey. Returns the ids that counted.
WITH back AS (
    UPDATE ebb.event e
    SET lease_until = NULL, attempts = GREATEST(e.attempts - t.uncounted, 0)
    FROM unnest($1::uuid[], $2::int8[], $3::int4[]) AS t (id, token, uncounted)
    WHERE e.id = t.id AND e.token = t.token
    RETURNING e.id, e.ready_at
),
woken AS MATERIALIZED (
    SELECT ebb.event_wake((SELECT min(ready_at) FROM back)) WHERE EXISTS (SELECT FROM back)
)
SELECT id FROM back WHERE (SELECT count(*) FROM woken) >= 0
