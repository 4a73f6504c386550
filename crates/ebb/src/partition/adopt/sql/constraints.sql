-- Foreign keys and checks of a table ($1), and of NOT NULL (a constraint since 18, which has ones that are not enforced, too: read
-- through JSON) what would not be so of a partitioned table. Read only.
SELECT con.conname::text AS name, con.contype::text AS kind, pg_catalog.pg_get_constraintdef(con.oid) AS definition,
       con.convalidated AS is_valid, COALESCE((to_jsonb(con) ->> 'conenforced')::boolean, true) AS is_enforced, con.connoinherit AS no_inherit, con.confrelid::regclass::text AS references_table,
       COALESCE(con.conbin::text LIKE '%{VAR :varno 1 :varattno 0 %', false) AS is_of_row,
       pg_catalog.obj_description(con.oid, 'pg_constraint') AS comment
FROM pg_catalog.pg_constraint con
WHERE con.conrelid = $1::int8::oid AND (con.contype IN ('f', 'c') OR con.contype = 'n' AND (NOT con.convalidated OR con.connoinherit))
  -- A key into a partitioned table has a row more for each partition.
  AND NOT EXISTS (SELECT FROM pg_catalog.pg_constraint p WHERE p.oid = con.conparentid AND p.conrelid = con.conrelid)
ORDER BY con.conname
