-- Stores the result of work in flight, if the token is still its own. Index: once_key_pkey. Lock: the row.
SELECT ebb.once_complete($1, $2, $3, $4)
