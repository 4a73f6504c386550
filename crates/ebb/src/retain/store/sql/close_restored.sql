-- The application took the soft delete of these ($1) back itself. Index: deletion_pkey. Lock: the rows; what was erased
-- while this waited stays erased.
UPDATE ebb.deletion
SET state = 'restored', closed_at = clock_timestamp(), closed_by = 'application', blocked = NULL, error = NULL
WHERE id = ANY($1) AND state IN ('pending', 'warned', 'failed')
