-- Forgets at most $3 events of a subject ($2) of a policy ($1), when there are too many for one transaction. Index: those of
-- the function.
SELECT ebb.forget_some_subject_events($1, $2, $3)
