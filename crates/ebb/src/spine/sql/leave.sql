-- A node that stops in order is gone at once, not only when it has been silent for a while. Expects node_pkey.
DELETE FROM ebb.node WHERE id = $1
