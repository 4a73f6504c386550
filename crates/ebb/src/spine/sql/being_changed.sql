-- Whether somebody is changing a policy ($1) or, where it erases ($2), one that may keep rows of its subjects, and has not committed that: what
-- is done meanwhile would come to nothing. Index: policy_name. Lock: their rows FOR SHARE; those that somebody has are not waited for.
WITH free AS MATERIALIZED (
    SELECT FROM ebb.policy WHERE name = $1 OR $2 AND kind = 'retain' FOR SHARE SKIP LOCKED
)
SELECT (SELECT count(*) FROM free) < (SELECT count(*) FROM ebb.policy WHERE name = $1 OR $2 AND kind = 'retain')
