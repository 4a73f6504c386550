-- Erasures before their time that are on record. Index: premature_pkey; read only.
SELECT count(*) FROM ebb.premature
