-- This node is alive: $1 id, $2 name, $3 version, $4 whether it hears NOTIFY. Expects node_pkey.
INSERT INTO ebb.node (id, name, version, listens) VALUES ($1, $2, $3, $4)
ON CONFLICT (id) DO UPDATE SET seen_at = clock_timestamp(), listens = EXCLUDED.listens
