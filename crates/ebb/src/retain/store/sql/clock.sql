-- What time it is. Read only.
SELECT ebb.now()
