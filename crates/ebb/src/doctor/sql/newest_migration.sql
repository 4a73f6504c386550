-- The newest migration that was applied. Expects migration_pkey; read only.
SELECT version, name FROM ebb.migration ORDER BY version DESC LIMIT 1
