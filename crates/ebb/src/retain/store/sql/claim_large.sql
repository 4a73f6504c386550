-- Subjects ($1) too large for one transaction, and whoever goes along with them, are claimed: from here on they cannot be restored.
-- Index: deletion_pkey. Lock: the rows, held already.
UPDATE ebb.deletion SET state = 'erasing', blocked = NULL WHERE id = ANY ($1) AND state IN ('pending', 'warned')
