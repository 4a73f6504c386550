-- Resources for people: $1 policy (null: all), $2 state (null: all but tombstones), $3 how many, $4 and $5 the policy and name after
-- which the page starts. Expects resource_name and reference_pkey; read only.
SELECT r.policy, r.name, r.state, r.orphan, r.store_id, r.problem, r.intended_at, r.condemned_at, r.dropped_at,
       (SELECT count(*) FROM ebb.reference f WHERE f.resource = r.id) AS refs,
       ARRAY(SELECT h.name FROM ebb.reference f JOIN ebb.holder h ON h.id = f.holder WHERE f.resource = r.id ORDER BY h.name LIMIT 20) AS holders,
       r.labels
FROM ebb.resource r
WHERE ($1::text IS NULL OR r.policy = $1) AND CASE WHEN $2::text IS NULL THEN r.state <> 'dropped' ELSE r.state = $2 END
  AND ($4::text IS NULL OR (r.policy, r.name) > ($4 COLLATE "C", $5::text COLLATE "C"))
ORDER BY r.policy, r.name
LIMIT $3
