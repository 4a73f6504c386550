-- A leaf ($1) and every table that its rows are rows of, by their names. Index: the catalog's; read only.
WITH RECURSIVE up AS (
    SELECT $1::int8::oid AS oid
    UNION
    SELECT i.inhparent FROM up JOIN pg_catalog.pg_inherits i ON i.inhrelid = up.oid
)
SELECT up.oid::int8, ebb.relation_label(up.oid) FROM up ORDER BY 1
