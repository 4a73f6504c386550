-- Whether a policy ($1) is still at a version ($2). Index: policy_name. Lock: its row FOR SHARE, so that whoever changes it comes before
-- this transaction or after it.
SELECT true FROM ebb.policy p WHERE p.kind = 'retain' AND p.name = $1 AND p.version = $2 FOR SHARE
