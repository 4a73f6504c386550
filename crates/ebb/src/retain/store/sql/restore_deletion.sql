-- Restores what one deletion ($1) deleted; $2 by. Index: deletion_pkey. Lock: the deletion and its subject's row.
SELECT ebb.restore_deletion($1, $2)
