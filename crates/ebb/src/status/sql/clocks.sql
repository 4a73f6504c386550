-- The time that cutoffs go by, and the plain one. Read only.
SELECT ebb.now() AS policy_now, clock_timestamp() AS now
