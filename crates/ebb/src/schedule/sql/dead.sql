-- Sinks whose receiver counts as dead, and since when. Expects breaker_pkey. Read only.
SELECT b.sink, ebb.dead_since(b.sink) AS since
FROM ebb.breaker b JOIN ebb.policy p ON p.kind = 'sink' AND p.name = b.sink AND p.enabled
WHERE ebb.dead_since(b.sink) IS NOT NULL
ORDER BY b.sink
