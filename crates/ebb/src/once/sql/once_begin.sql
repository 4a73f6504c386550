-- Claims a key for work in flight. Index: once_key_pkey. Lock: the row it inserts or takes over, until commit.
SELECT outcome, token FROM ebb.once_begin($1, $2, $3, $4)
