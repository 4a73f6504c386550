-- Whether somebody gave a reason for it that a policy ($1) takes rows of a table ($2) which another policy ($3) keeps for longer. Records of
-- before have no table. Index: audit_floor; read only.
SELECT EXISTS (SELECT FROM ebb.audit a
               WHERE a.action = 'floor' AND a.policy = $1 AND a.details ->> 'of' = $3 AND COALESCE(a.details ->> 'table', $2) = $2)
