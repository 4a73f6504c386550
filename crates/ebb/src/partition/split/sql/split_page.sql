-- So many pages ($2) are copied; in the transaction that copied them. Expects split_pkey.
UPDATE ebb.split SET page = $2, changed_at = clock_timestamp() WHERE relation = $1
