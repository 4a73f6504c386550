-- A subject too large for one transaction is claimed: from here on it cannot be restored ($1). Index: deletion_pkey.
UPDATE ebb.deletion SET state = 'erasing', blocked = NULL WHERE id = $1 AND state IN ('pending', 'warned')
