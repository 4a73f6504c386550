-- Gates that say wrongly whether a hold can bind their policy. Index: reach_relation; read only.
SELECT g.policy FROM ebb.gate g
WHERE g.bound <> EXISTS (SELECT FROM ebb.reach r WHERE r.relation = ANY (g.relations))
