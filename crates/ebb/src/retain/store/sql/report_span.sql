-- The time that a report covers: from $1 (absent: 30 days before) to $2 (absent: now, by the clock of policies). Read only.
SELECT COALESCE($1, COALESCE($2, ebb.now()) - interval '30 days'), COALESCE($2, ebb.now())
