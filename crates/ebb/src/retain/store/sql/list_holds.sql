-- Holds in force, the latest first: $1 policy (null: all), $2 how many, $3 the hold after which the page starts (null: the first). Index:
-- hold_active, deletion_open; read only.
SELECT v.hold, v.policy, v.subject_id, v.reason, v.since, v.until, v.placed_by, v.deletion, v.state
FROM ebb.v_holds v
WHERE ($1::text IS NULL OR v.policy = $1) AND ($3::bigint IS NULL OR v.hold < $3)
ORDER BY v.hold DESC
LIMIT $2
