-- Whether marking has due times of a policy ($1) to renew. Index: retain_pkey; read only.
SELECT r.renews FROM ebb.retain r WHERE r.policy = $1
