-- Claims a key. Index: once_key_pkey. Lock: the row it inserts or takes over, until commit; a duplicate locks nothing.
SELECT ebb.once($1, $2, $3, $4)
