-- Remembers the links ($3) of erased subjects ($2) of a policy ($1); until when is for put_horizon to say. No index is read.
INSERT INTO ebb.late_link (policy, deletion, horizon, sealed)
SELECT $1, s.deletion, 0, s.sealed
FROM unnest($2::uuid[], $3::bytea[]) AS s (deletion, sealed)
RETURNING id
