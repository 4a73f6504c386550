-- Makes another subject key ($1) the database's, as somebody ($2) says. One row; as the owner of the schema.
UPDATE ebb.subject_key SET key_id = $1, known_since = clock_timestamp(), used_by = $2
