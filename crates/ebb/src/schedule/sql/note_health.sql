-- Keeps in mind which receivers count as dead ($1: sinks whose calls fail), since when and that it was tried just now; those that took
-- something ($2: sinks) are alive. What nobody tried for an hour begins anew. Expects breaker_pkey.
WITH alive AS (
    DELETE FROM ebb.breaker b WHERE b.sink = ANY ($2)
)
INSERT INTO ebb.breaker AS b (sink, since, tried_at)
SELECT s.sink, ebb.clock(), clock_timestamp() FROM unnest($1::text[]) AS s (sink) ORDER BY s.sink
ON CONFLICT (sink) DO UPDATE
SET since = COALESCE(ebb.dead_since(EXCLUDED.sink), EXCLUDED.since), tried_at = EXCLUDED.tried_at
