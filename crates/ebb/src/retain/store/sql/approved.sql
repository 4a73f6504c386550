-- The tree that was approved for a policy ($1). Index: retain_pkey; read only.
SELECT tree FROM ebb.retain WHERE policy = $1
