-- The application took the soft delete of these ($1) back itself. Index: deletion_pkey. Lock: rows held already.
UPDATE ebb.deletion
SET state = 'restored', closed_at = clock_timestamp(), closed_by = 'application', blocked = NULL, error = NULL
WHERE id = ANY($1)
