-- Pages and bytes of a table ($1) with its partitions, indexes included: figures of the file system. Read only.
SELECT COALESCE(sum(pg_catalog.pg_relation_size(t.relid) / 8192), 0)::int8,
       COALESCE(sum(pg_catalog.pg_total_relation_size(t.relid)), 0)::int8
FROM (SELECT $1::int8::oid::regclass AS relid WHERE NOT EXISTS (SELECT FROM pg_catalog.pg_partition_tree($1::int8::oid::regclass))
      UNION ALL SELECT p.relid FROM pg_catalog.pg_partition_tree($1::int8::oid::regclass) p WHERE p.isleaf) AS t
