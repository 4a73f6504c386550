-- Gives a key in flight back, if the token is still its own. Index: once_key_pkey. Lock: the row it deletes.
SELECT ebb.once_release($1, $2, $3)
