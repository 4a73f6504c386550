-- Takes back what no sink has yet of the warnings of a policy ($1), of the next $3 deletions after $2; those stay whose event is in the
-- sink that they go through by now ($4, null: none stays). Returns the last of them; no row when there is none. Index:
-- warning_under_way, event_pkey. Lock: their events; deletions that somebody holds are not waited for.
SELECT u.deletions[cardinality(u.deletions)]
FROM (SELECT array_agg(w.deletion ORDER BY w.deletion) AS deletions
      FROM (SELECT DISTINCT w.deletion FROM ebb.warning w
            WHERE w.policy = $1 AND w.accepted_at IS NULL AND w.failed_at IS NULL
              AND w.deletion > COALESCE($2, '00000000-0000-0000-0000-000000000000'::uuid)
              AND ($4::text IS NULL OR EXISTS (SELECT FROM ebb.event e WHERE e.id = w.event AND e.sink <> $4))
            ORDER BY w.deletion LIMIT $3) AS w
      HAVING count(*) > 0) AS u
CROSS JOIN LATERAL ebb.withdraw_warnings(u.deletions)
