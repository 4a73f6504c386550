-- The deletion of the account of one person ($1), which the link in their warning is for.
SELECT deletion FROM ebb.v_deletions WHERE policy = 'accounts' AND subject_id = $1 AND state = 'warned'
