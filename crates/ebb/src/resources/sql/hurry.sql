-- An operator wants this one gone ($1 policy, $2 name) without waiting for its grace. Locks the row FOR UPDATE; whoever
-- acts looks for references in the next statement. Expects resource_name.
SELECT id, state FROM ebb.resource WHERE policy = $1 AND name = $2 FOR UPDATE
