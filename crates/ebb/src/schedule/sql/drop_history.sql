-- Drops the oldest day of the history that lies further back than $1, if there is one. Takes ACCESS EXCLUSIVE on the partition and,
-- for a moment, on its parent.
SELECT d.partition, d.rows, d.day::text AS day FROM ebb.event_history_drop(ebb.now() - $1::interval) AS d
