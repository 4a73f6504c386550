-- Which of these subjects ($2), soft-deleted since $3 or later, of a policy ($1) have no open deletion for that, by their position; with
-- the deletion of an earlier soft delete that is still open, unless it is being erased. Whoever is on hold is left out: they are found when
-- the hold has ended. Index: deletion_open, hold_active; read only. OFFSET
-- keeps the server from reading every deletion of the policy instead, which it does where its statistics lag behind.
SELECT s.at::int4 - 1, d.id
FROM unnest($2::text[], $3::timestamptz[]) WITH ORDINALITY AS s (id, since, at)
LEFT JOIN LATERAL (SELECT d.id, d.deleted_at, d.state FROM ebb.deletion d WHERE d.policy = $1 AND d.subject_id = s.id
                   AND d.state IN ('pending', 'warned', 'erasing', 'failed') OFFSET 0) d ON true
WHERE (d.id IS NULL OR (d.deleted_at <= s.since AND d.state <> 'erasing'))
  AND NOT EXISTS (SELECT FROM ebb.hold h WHERE h.policy = $1 AND h.subject_id = s.id AND h.lifted_at IS NULL
                  AND (h.until IS NULL OR h.until > ebb.now()))
ORDER BY s.at
