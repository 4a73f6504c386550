-- Holders for people, the latest beat first: $1 how many. Expects reference_holder. Read only.
SELECT h.id, h.name, h.labels, h.opened_at, h.beat_at, h.expires_at, h.expires_at > clock_timestamp() AS alive,
       (SELECT count(*) FROM ebb.reference f WHERE f.holder = h.id) AS refs
FROM ebb.holder h
ORDER BY h.beat_at DESC, h.id
LIMIT $1
