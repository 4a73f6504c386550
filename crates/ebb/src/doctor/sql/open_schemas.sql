-- Schemas in which anybody may create functions and operators, of those where policies' expressions and keys are looked up: public,
-- and those of tables ($1). Index: pg_class_oid_index. Read only.
SELECT n.nspname::text
FROM pg_catalog.pg_namespace n
WHERE (n.nspname = 'public' OR n.oid IN (SELECT c.relnamespace FROM unnest($1::text[]) AS t (name)
                                         JOIN pg_catalog.pg_class c ON c.oid = to_regclass(t.name)))
  AND EXISTS (SELECT FROM aclexplode(COALESCE(n.nspacl, acldefault('n', n.nspowner))) AS a
              WHERE a.grantee = 0 AND a.privilege_type = 'CREATE')
ORDER BY 1
