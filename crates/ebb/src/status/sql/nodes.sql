-- Nodes that were seen within two minutes; alive are those of the last 15 seconds. steady: it has been looking for a
-- while, so that whether it listens means something. Expects node_seen_at; read only.
SELECT name, version, started_at, seen_at, listens,
       seen_at > clock_timestamp() - interval '15 seconds' AS alive,
       seen_at > started_at + interval '10 seconds' AS steady
FROM ebb.node
WHERE seen_at > clock_timestamp() - interval '2 minutes'
ORDER BY name, started_at
