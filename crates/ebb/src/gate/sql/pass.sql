-- Passes the gate of a policy ($1), before anything of its tables is looked at: whether a hold can bind it. Index:
-- gate_pkey. Lock: FOR KEY SHARE, which waits for a hold that is being placed and makes later ones wait.
SELECT g.bound FROM ebb.gate g WHERE g.policy = $1 FOR KEY SHARE
