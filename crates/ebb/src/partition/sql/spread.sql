-- How the rows of a table ($1) are spread: the bytes of one of its partitions ($2), and of the others; and how many pages
-- there are, and of how many an index can answer alone. Reads file sizes; read only.
SELECT COALESCE(sum(pg_catalog.pg_relation_size(c.oid)) FILTER (WHERE c.oid = $2::int8::oid), 0)::int8 AS one,
       COALESCE(sum(pg_catalog.pg_relation_size(c.oid)) FILTER (WHERE c.oid <> $2::int8::oid), 0)::int8 AS others,
       COALESCE(sum(GREATEST(c.relpages, 0)), 0)::int8 AS pages, COALESCE(sum(c.relallvisible), 0)::int8 AS visible
FROM pg_catalog.pg_inherits i
JOIN pg_catalog.pg_class c ON c.oid = i.inhrelid
WHERE i.inhparent = $1::int8::oid
