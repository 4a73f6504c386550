-- Every gate and the tables behind it. Index: none; there is one for each policy. Read only.
SELECT g.policy, g.relations FROM ebb.gate g
