-- Tables of the ebb schema that a role ($1) cannot use the way a node must. What is a partition is used through its table, whose rights
-- count. Expects pg_class (relnamespace); read only.
SELECT c.relname::text
FROM pg_class c
WHERE c.relnamespace = 'ebb'::regnamespace AND c.relkind IN ('r', 'p') AND NOT c.relispartition
  -- Nobody but their owner reads these; functions check a token.
  AND c.relname NOT IN ('token', 'session')
  AND NOT (has_schema_privilege($1, c.relnamespace, 'USAGE') AND has_table_privilege($1, c.oid, 'SELECT')
           AND (c.relname NOT IN ('audit', 'audit_block', 'audit_leaf') OR has_table_privilege($1, c.oid, 'INSERT'))
           AND (c.relname NOT IN ('unit', 'lease', 'run', 'node', 'sample', 'policy', 'brake', 'once_key')
                OR (has_table_privilege($1, c.oid, 'INSERT') AND has_table_privilege($1, c.oid, 'UPDATE')
                    AND has_table_privilege($1, c.oid, 'DELETE'))))
ORDER BY 1
