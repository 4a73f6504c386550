-- The id of the database's subject key, and who used it first. One row or none; read only.
SELECT key_id, used_by FROM ebb.subject_key
