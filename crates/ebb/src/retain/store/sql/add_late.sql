-- Remembers the links ($3) of erased subjects ($2) of a policy ($1) until whoever is under way now has ended. No index is read.
INSERT INTO ebb.late_link (policy, deletion, horizon, sealed)
SELECT $1, s.deletion, pg_snapshot_xmax(pg_current_snapshot())::text::bigint, s.sealed
FROM unnest($2::uuid[], $3::bytea[]) AS s (deletion, sealed)
