-- Claims many keys, returns the first ones. Index: once_key_pkey. Lock: the rows it inserts or takes over, in key order.
SELECT first FROM ebb.once_many($1, $2, $3) AS first
