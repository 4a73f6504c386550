-- What a policy took out of a table ($2) for a time and looks after no more, since it is switched off or has another name, is left to
-- the one that does ($1): its terms count. Expects detached_pkey; policies are few.
UPDATE ebb.detached d SET policy = $1
WHERE d.parent = $2 AND d.policy <> $1
  AND EXISTS (SELECT FROM ebb.policy p WHERE p.name = d.policy AND p.kind = 'partition' AND NOT p.enabled
              AND (p.spec ->> 'expired' IS DISTINCT FROM 'detach' OR p.spec ? 'detached_for'))
