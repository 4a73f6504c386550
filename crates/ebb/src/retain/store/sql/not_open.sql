-- Which of these subjects ($2) of a policy ($1) have no open deletion, by their position. Index: deletion_open; read only. OFFSET keeps
-- the server from reading every deletion of the policy instead, which it does where its statistics lag behind.
SELECT s.at::int4 - 1
FROM unnest($2::text[]) WITH ORDINALITY AS s (id, at)
WHERE NOT EXISTS (SELECT FROM ebb.deletion d WHERE d.policy = $1 AND d.subject_id = s.id
                  AND d.state IN ('pending', 'warned', 'erasing', 'failed') OFFSET 0)
ORDER BY s.at
