-- Whether somebody is changing a policy ($1), or one that may keep rows of its subjects, and has not committed that: what is done meanwhile
-- would come to nothing. Index: policy_name. Lock: their rows FOR SHARE, which nobody is waited for to give.
WITH free AS MATERIALIZED (
    SELECT FROM ebb.policy WHERE name = $1 OR kind = 'retain' FOR SHARE SKIP LOCKED
)
SELECT (SELECT count(*) FROM free) < (SELECT count(*) FROM ebb.policy WHERE name = $1 OR kind = 'retain')
