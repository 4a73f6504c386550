-- Reads what was stored for a living key. Index: once_key_pkey. Lock: none.
SELECT ebb.once_result($1, $2)
