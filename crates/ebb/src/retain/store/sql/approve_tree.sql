-- The tree of a policy ($1) is approved as it is ($2) by whoever ($3) changed a policy that keeps rows of it. Index: retain_pkey. Lock: the row.
UPDATE ebb.retain SET tree = $2, approved_by = $3, approved_at = clock_timestamp() WHERE policy = $1
