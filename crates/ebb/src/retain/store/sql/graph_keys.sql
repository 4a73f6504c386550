-- Foreign keys whose child or parent is one of the tables $1 or a partition of one; the copies that PostgreSQL keeps
-- for partitions are left out. Expects pg_constraint; read only. ON DELETE SET NULL may name columns from 15 on.
SELECT c.conname::text AS name,
       COALESCE(pg_catalog.pg_partition_root(c.conrelid)::oid, c.conrelid)::int8 AS child,
       COALESCE(pg_catalog.pg_partition_root(c.confrelid)::oid, c.confrelid)::int8 AS parent,
       -- The leaves of the one partition that has it, or of a partition of partitions.
       CASE WHEN cc.relispartition THEN ARRAY(
           SELECT leaf.relid::oid::int8 FROM pg_catalog.pg_partition_tree(cc.oid) AS leaf WHERE leaf.isleaf) END AS child_leaves,
       pc.relispartition AS to_partition, pn.nspname::text AS parent_schema, pc.relname::text AS parent_name,
       c.confdeltype::text AS on_delete,
       c.condeferrable AS deferrable,
       c.confmatchtype = 'f' AS full,
       -- Both from 18 on.
       COALESCE((to_jsonb(c) ->> 'conperiod')::boolean, false) AS temporal,
       COALESCE((to_jsonb(c) ->> 'conenforced')::boolean, true) AS enforced,
       ARRAY(SELECT a.attname::text FROM unnest(c.conkey) WITH ORDINALITY AS k (num, at)
             JOIN pg_catalog.pg_attribute a ON a.attrelid = c.conrelid AND a.attnum = k.num ORDER BY k.at) AS child_columns,
       ARRAY(SELECT a.attname::text FROM unnest(c.confkey) WITH ORDINALITY AS k (num, at)
             JOIN pg_catalog.pg_attribute a ON a.attrelid = c.confrelid AND a.attnum = k.num ORDER BY k.at) AS parent_columns,
       ARRAY(SELECT a.attname::text FROM jsonb_array_elements_text(
                 CASE WHEN jsonb_typeof(to_jsonb(c) -> 'confdelsetcols') = 'array'
                      THEN to_jsonb(c) -> 'confdelsetcols' ELSE '[]' END) AS k (num)
             JOIN pg_catalog.pg_attribute a ON a.attrelid = c.conrelid AND a.attnum = k.num::int2 ORDER BY 1) AS set_columns,
       -- By what the server compares each pair of columns: the operator's schema, and what both are cast to where either is of another type
       -- (character with text), which the parser might decide otherwise.
       ARRAY(SELECT n.nspname::text FROM unnest(c.conpfeqop) WITH ORDINALITY AS e (op, at)
             JOIN pg_catalog.pg_operator o ON o.oid = e.op JOIN pg_catalog.pg_namespace n ON n.oid = o.oprnamespace ORDER BY e.at) AS operators,
       ARRAY(SELECT CASE WHEN o.oprleft = o.oprright AND t.typtype <> 'p' AND EXISTS (
                 WITH RECURSIVE base AS (
                     SELECT a.atttypid AS oid FROM pg_catalog.pg_attribute a
                     WHERE (a.attrelid, a.attnum) IN ((c.conrelid, c.conkey[e.at]), (c.confrelid, c.confkey[e.at]))
                     UNION
                     SELECT d.typbasetype FROM base JOIN pg_catalog.pg_type d ON d.oid = base.oid AND d.typtype = 'd'
                 )
                 SELECT FROM base JOIN pg_catalog.pg_type b ON b.oid = base.oid AND b.typtype <> 'd'
                 WHERE b.oid <> o.oprleft AND NOT (b.oid = 'varchar'::regtype AND o.oprleft = 'text'::regtype))
             THEN pg_catalog.format_type(o.oprleft, -1) END
             FROM unnest(c.conpfeqop) WITH ORDINALITY AS e (op, at)
             JOIN pg_catalog.pg_operator o ON o.oid = e.op JOIN pg_catalog.pg_type t ON t.oid = o.oprleft ORDER BY e.at) AS casts
FROM pg_catalog.pg_constraint c
JOIN pg_catalog.pg_class cc ON cc.oid = c.conrelid
JOIN pg_catalog.pg_namespace cn ON cn.oid = cc.relnamespace
JOIN pg_catalog.pg_class pc ON pc.oid = c.confrelid
JOIN pg_catalog.pg_namespace pn ON pn.oid = pc.relnamespace
WHERE c.contype = 'f' AND c.conparentid = 0
  AND COALESCE(pg_catalog.pg_partition_root(c.confrelid)::oid, c.confrelid) = ANY ($1::int8[]::oid[])
ORDER BY cn.nspname, cc.relname, c.conname
